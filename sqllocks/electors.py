"""Leader election as users import it: thin pairs over one core."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from sqllocks.candidates import AsyncioCandidates, BlockingCandidates
from sqllocks.core.diagnosing import told
from sqllocks.core.electing import Campaign
from sqllocks.core.leases import Leases
from sqllocks.core.locking import Seat
from sqllocks.diagnosis import IN_MEMORY, Diagnosis, Finding
from sqllocks.errors import BackendUnsupported, LockValidationError
from sqllocks.fencing import Guards, MemoryGuards
from sqllocks.lockers import AsyncSqlLocker, SqlLocker
from sqllocks.model import Seconds
from sqllocks.policy import HEARTBEAT, checked_lease, checked_prefix, checked_retry, checked_wait
from sqllocks.providers import AsyncSqlLockProvider, SqlLockProvider
from sqllocks.runtime.asynchronous import AsyncioBackground, AsyncioClock
from sqllocks.runtime.blocking import BlockingBackground, BlockingClock, drive
from sqllocks.runtime.rooms import MemoryRoom, private_memory

__all__ = ["PREFIX", "AsyncMemoryElector", "AsyncSqlElector", "MemoryElector", "SqlElector"]

logger = logging.getLogger("sqllocks")

PREFIX = "election:"
"""What goes before each key that is stood for, unless told otherwise."""
_STRATEGIES = ("auto", "session", "lease")


class SqlElector(BlockingCandidates):
    """Elects one leader per key among all processes that use the database.

    ``bind`` and what is not named here are as for ``SqlLocker``. ``strategy``: ``"session"`` leads with a
    session lock, ``"lease"`` with a lease of ``lease`` seconds that is renewed every ``heartbeat``,
    ``"auto"`` with a session lock where the server can exclude with one, else with a lease; candidates of
    different strategies exclude each other. ``retry`` is the pause of a candidate between two tries, in
    seconds (a release is told at once on PostgreSQL). ``prefix`` goes before each key; with
    ``naming="fnv1a64"`` it is empty where it is left as it is, so that leaders of ``dlock`` are met.
    ``on_error`` gets what a callback raised.

    A leader that died is followed within ``retry`` (session) or ``lease``; one that froze, within ``lease``.
    """

    def __init__(
        self,
        bind: Any,
        *,
        strategy: str = "auto",
        lease: Seconds = 15,
        heartbeat: Seconds | None = HEARTBEAT,
        retry: Seconds = 2,
        prefix: str = PREFIX,
        on_error: Callable[[BaseException], Any] | None = None,
        namespace: str = "",
        naming: str = "sha256",
        holder: str | None = None,
        table: str = "core_locks",
        schema: str | None = None,
        direct_url: Any = None,
        pooler: str | None = None,
        max_session_locks: int | None = None,
        sessions: int = 1,
    ) -> None:
        space = namespace + _prefix(prefix, naming)
        common: dict[str, Any] = {"namespace": space, "holder": holder, "table": table, "schema": schema}
        long, beat = checked_lease(lease, heartbeat)
        self._leased = _Leased(bind, **common)
        self._guards = self._leased.guards
        self._on_error = on_error
        self._lease_seat = self._leased.seat(round(long * 1_000_000), beat)
        self._locker: _Locked | None = None
        if _wants_session(strategy, self._leased.dialect):
            self._locker = _Locked(
                bind,
                lease=lease,
                heartbeat=heartbeat,
                naming=naming,
                direct_url=direct_url,
                pooler=pooler,
                max_session_locks=max_session_locks,
                sessions=sessions,
                **common,
            )
        self._strategy = strategy
        choice = _Choice(strategy, self._lease_seat, self._locker.seat if self._locker else None)
        self._campaign = Campaign(BlockingClock(), choice.made, retry=checked_retry(retry))

    def diagnose(self) -> Diagnosis:
        findings = self._leased.diagnose().findings
        if self._locker is None:
            return Diagnosis(findings)
        more = self._locker.session_findings(findings, needed=self._strategy == "session")
        return told(findings, more)

    def close(self, timeout: Seconds | None = 10) -> None:
        if self._locker is not None:
            self._locker.close(timeout)
        self._leased.close(timeout)

    def _looking(self) -> Leases:
        return self._lease_seat.leases


class AsyncSqlElector(AsyncioCandidates):
    """Elects one leader per key among all processes that use the database.

    What is said of ``SqlElector`` and its arguments holds here too. Belongs to the event loop of its first
    use, and its heartbeat runs in that loop on purpose.
    """

    def __init__(
        self,
        bind: Any,
        *,
        strategy: str = "auto",
        lease: Seconds = 15,
        heartbeat: Seconds | None = HEARTBEAT,
        retry: Seconds = 2,
        prefix: str = PREFIX,
        on_error: Callable[[BaseException], Any] | None = None,
        namespace: str = "",
        naming: str = "sha256",
        holder: str | None = None,
        table: str = "core_locks",
        schema: str | None = None,
        direct_url: Any = None,
        pooler: str | None = None,
        max_session_locks: int | None = None,
        sessions: int = 1,
    ) -> None:
        space = namespace + _prefix(prefix, naming)
        common: dict[str, Any] = {"namespace": space, "holder": holder, "table": table, "schema": schema}
        long, beat = checked_lease(lease, heartbeat)
        self._leased = _AsyncLeased(bind, **common)
        self._guards = self._leased.guards
        self._on_error = on_error
        self._lease_seat = self._leased.seat(round(long * 1_000_000), beat)
        self._locker: _AsyncLocked | None = None
        if _wants_session(strategy, self._leased.dialect):
            self._locker = _AsyncLocked(
                bind,
                lease=lease,
                heartbeat=heartbeat,
                naming=naming,
                direct_url=direct_url,
                pooler=pooler,
                max_session_locks=max_session_locks,
                sessions=sessions,
                **common,
            )
        self._strategy = strategy
        choice = _Choice(strategy, self._lease_seat, self._locker.seat if self._locker else None)
        self._campaign = Campaign(AsyncioClock(), choice.made, retry=checked_retry(retry))

    async def diagnose(self) -> Diagnosis:
        findings = (await self._leased.diagnose()).findings
        if self._locker is None:
            return Diagnosis(findings)
        more = await self._locker.session_findings(findings, needed=self._strategy == "session")
        return told(findings, more)

    async def aclose(self, timeout: Seconds | None = 10) -> None:
        if self._locker is not None:
            await self._locker.aclose(timeout)
        await self._leased.aclose(timeout)

    def _looking(self) -> Leases:
        return self._lease_seat.leases


class MemoryElector(BlockingCandidates):
    """Elects one leader per key among the candidates of this object: for tests and for one process."""

    def __init__(
        self,
        *,
        lease: Seconds = 15,
        heartbeat: Seconds | None = HEARTBEAT,
        retry: Seconds = 2,
        prefix: str = PREFIX,
        on_error: Callable[[BaseException], Any] | None = None,
    ) -> None:
        long, beat = checked_lease(lease, heartbeat)
        room, clock = self._find(checked_prefix(prefix)), BlockingClock()
        leases = Leases(clock, room.backend, namespace=room.namespace, lines=room.lines)
        seat = Seat(leases, leases.holding(BlockingBackground()), round(long * 1_000_000), beat)
        self._seat = seat
        self._guards = MemoryGuards(room.backend, namespace=room.namespace)
        self._on_error = on_error
        self._campaign = Campaign(clock, _Choice("lease", seat, None).made, retry=checked_retry(retry))

    def diagnose(self) -> Diagnosis:
        return IN_MEMORY

    def close(self, timeout: Seconds | None = 10) -> None:
        drive(self._seat.holding.close(checked_wait(timeout)))

    def _find(self, namespace: str) -> MemoryRoom:
        return private_memory("session", namespace=namespace)

    def _looking(self) -> Leases:
        return self._seat.leases


class AsyncMemoryElector(AsyncioCandidates):
    """Elects one leader per key among the candidates of this object: for tests and for one process."""

    def __init__(
        self,
        *,
        lease: Seconds = 15,
        heartbeat: Seconds | None = HEARTBEAT,
        retry: Seconds = 2,
        prefix: str = PREFIX,
        on_error: Callable[[BaseException], Any] | None = None,
    ) -> None:
        long, beat = checked_lease(lease, heartbeat)
        room, self._clock = self._find(checked_prefix(prefix)), AsyncioClock()
        self._background = AsyncioBackground()
        leases = Leases(self._clock, room.backend, namespace=room.namespace, lines=room.lines)
        seat = Seat(leases, leases.holding(self._background), round(long * 1_000_000), beat)
        self._seat = seat
        self._guards = MemoryGuards(room.backend, namespace=room.namespace)
        self._on_error = on_error
        self._campaign = Campaign(self._clock, _Choice("lease", seat, None).made, retry=checked_retry(retry))

    async def diagnose(self) -> Diagnosis:
        return IN_MEMORY

    async def aclose(self, timeout: Seconds | None = 10) -> None:
        longest = checked_wait(timeout)
        await self._clock.settle(longest)
        await self._seat.holding.close(longest)
        await self._background.stop()

    def _find(self, namespace: str) -> MemoryRoom:
        return private_memory("session", namespace=namespace)

    def _looking(self) -> Leases:
        return self._seat.leases


class _Leased(SqlLockProvider):
    """The lease side of an elector."""

    _caller = "SqlElector"

    @property
    def dialect(self) -> str:
        return self._dialect

    @property
    def guards(self) -> Guards:
        assert isinstance(self._guards, Guards)
        return self._guards

    def seat(self, ttl: int, heartbeat: float) -> Seat:
        return Seat(self._leases, self._holding, ttl, heartbeat)


class _AsyncLeased(AsyncSqlLockProvider):
    """The lease side of an elector."""

    _caller = "AsyncSqlElector"

    @property
    def dialect(self) -> str:
        return self._dialect

    @property
    def guards(self) -> Guards:
        assert isinstance(self._guards, Guards)
        return self._guards

    def seat(self, ttl: int, heartbeat: float) -> Seat:
        return Seat(self._leases, self._holding, ttl, heartbeat)


class _Locked(SqlLocker):
    """The session side of an elector."""

    _caller = "SqlElector"

    def session_findings(self, before: Sequence[Finding], *, needed: bool) -> list[Finding]:
        return self._session_findings(before, needed=needed)

    @property
    def seat(self) -> Seat:
        return self._seat


class _AsyncLocked(AsyncSqlLocker):
    """The session side of an elector."""

    _caller = "AsyncSqlElector"

    async def session_findings(self, before: Sequence[Finding], *, needed: bool) -> list[Finding]:
        return await self._session_findings(before, needed=needed)

    @property
    def seat(self) -> Seat:
        return self._seat


class _Choice:
    """How an elector holds its keys; decided at the first contact and kept."""

    def __init__(self, strategy: str, lease: Seat, session: Seat | None) -> None:
        self._strategy = strategy
        self._lease = lease
        self._session = session
        self._made: Seat | None = None

    async def made(self) -> Seat:
        """Return the seat; raises ``LockError`` where the database has to be asked and does not answer."""
        if self._made is None:
            self._made = await self._decide()
        return self._made

    async def _decide(self) -> Seat:
        if self._session is None:
            return self._lease
        if self._strategy == "auto":
            try:
                await self._session.contact()
            except BackendUnsupported as error:
                logger.info("candidates lead with leases: %s", error.message)
                return self._lease
        return self._session


def _prefix(prefix: str, naming: str) -> str:
    if naming == "fnv1a64" and prefix == PREFIX:
        return ""
    return checked_prefix(prefix)


def _wants_session(strategy: str, dialect: str) -> bool:
    if strategy not in _STRATEGIES:
        choices = " or ".join(repr(each) for each in _STRATEGIES)
        raise LockValidationError(
            f"strategy must be {choices}, not {strategy!r:.40}", details={"argument": "strategy"}
        )
    return strategy == "session" or (strategy == "auto" and dialect != "sqlite")
