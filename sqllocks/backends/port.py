"""The port between decisions and the world: time, and statements on database sessions.

Core and backends are ``async def`` over this port. A blocking port never suspends, an asyncio port
really awaits, and a stepping port lets tests choose what happens at each step.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Protocol, TypeVar

from sqllocks.dialects import SessionDialect
from sqllocks.dialects.base import LeaseDialect, Parameters, Result, Statement
from sqllocks.dialects.sessions import Server

__all__ = [
    "IO",
    "Alarm",
    "Background",
    "Clock",
    "Dedicated",
    "Event",
    "LockSession",
    "Session",
    "Sessions",
    "Wakeups",
    "Watch",
]

T = TypeVar("T")


class Session(Protocol):
    """One autocommit session on the server."""

    locked: set[str]
    """Keys whose row was found locked when it was last asked about by itself."""

    @property
    def sql(self) -> LeaseDialect:
        """The statements of the dialect that this session speaks."""
        ...

    def query(self, statement: Statement, parameters: Parameters) -> Coroutine[Any, Any, Result]:
        """Run one statement; raises ``Fault``."""
        ...


class Sessions(Protocol):
    """Where a backend borrows its sessions."""

    async def use(self, work: Callable[[Session], Coroutine[Any, Any, T]]) -> T:
        """Do ``work`` on a borrowed session; one that failed or was interrupted is thrown away.

        A call and not a context manager: an interruption can strike between the end of
        ``__aenter__`` and the body, where nothing gives the session back.
        """
        ...


class LockSession(Protocol):
    """A session of the server that carries locks."""

    locked: set[str]
    """As in ``Session``."""

    @property
    def sql(self) -> SessionDialect:
        """The statements of the dialect that this session speaks."""
        ...

    @property
    def server(self) -> Server:
        """What the server said of itself when the session began."""
        ...

    def query(self, statement: Statement, parameters: Parameters) -> Coroutine[Any, Any, Result]:
        """Run one statement; raises ``Fault``."""
        ...


class Dedicated(Protocol):
    """The one session that carries the locks of a locker: when it ends, they have ended."""

    ended: Callable[[], Callable[[], None]]
    """Called once for each session that ends, however that comes, in any thread, before there is another;
    what it returns is called when the session can be used again."""

    @property
    def server(self) -> Server | None:
        """What the server said of itself; ``None`` before the first session."""
        ...

    async def use(self, work: Callable[[LockSession], Coroutine[Any, Any, T]], *, opening: bool = True) -> T:
        """Do ``work`` on the session, one after another; one that is in doubt afterwards is ended.

        Without ``opening``, a ``Fault`` of the kind ``GONE`` where there is no session.
        """
        ...

    def cut(self) -> None:
        """End the session at once, also while a statement hangs on it; from any thread."""
        ...


class Alarm(Protocol):
    """Something that rings later."""

    def cancel(self) -> None:
        """Do not ring any more."""
        ...


class Background(Protocol):
    """Where one activity of a provider runs beside its callers: a task, or a daemon thread."""

    linger: float
    """Seconds to stay around with nothing to do, because starting again costs something."""

    def ensure(self, run: Callable[[], Coroutine[Any, Any, None]], busy: Callable[[], bool]) -> None:
        """See to it that ``run`` runs, now or again, until it returns and is not ``busy``."""
        ...

    def wake(self) -> None:
        """End a pause early."""
        ...

    async def pause(self, seconds: float) -> None:
        """Wait until the time is over or somebody wakes it."""
        ...


class Event(Protocol):
    """What one waiter sleeps on."""

    @property
    def home(self) -> Hashable:
        """The event loop that its waiter belongs to; the same for all threads."""
        ...

    def set(self) -> None:
        """Wake the waiter, now or when it is about to sleep; from any thread."""
        ...

    async def wait(self, seconds: float) -> bool:
        """Sleep until it is set or the time is over; take the flag back and return whether it was set."""
        ...


class Watch(Protocol):
    """A request to be told of the releases of one key."""

    @property
    def active(self) -> bool:
        """Whether every release from now on is certain to be told, or the loss of this certainty is."""
        ...

    def close(self) -> None:
        """Want to know no more."""
        ...


class Wakeups(Protocol):
    """Tells of releases by other processes, where the server can."""

    def watch(self, key: str, alarm: Callable[[], None]) -> Watch:
        """Have ``alarm`` called, in any thread, when a key may have become free; never waits."""
        ...


class Clock(Protocol):
    """Local time and waiting."""

    def now(self) -> float:
        """Return monotonic seconds; only differences mean anything."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait; the caller may be cancelled here."""
        ...

    def event(self) -> Event:
        """Return a new event for the present caller."""
        ...

    def alarm(self, seconds: float, ring: Callable[[], None]) -> Alarm:
        """Call ``ring`` once after that time, also while a statement hangs, unless cancelled before."""
        ...

    async def shielded(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Run ``work`` to its end whatever is cancelled meanwhile; ``None`` where it goes on behind."""
        ...


class IO(Sessions, Clock, Protocol):
    """Everything that a run of the core needs from outside."""
