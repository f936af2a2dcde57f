"""What lockers and electors hand out: a lock that ends with its session, and a term of leadership."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from sqllocks.blocks import AsyncBody
from sqllocks.core.holding import Holding
from sqllocks.core.kept import Kept
from sqllocks.errors import BackendUnsupported, LeaseLost
from sqllocks.fencing import Guards, MemoryGuards
from sqllocks.lease import Held
from sqllocks.model import LockHandle, Seconds
from sqllocks.policy import checked_wait
from sqllocks.runtime import clock
from sqllocks.runtime.blocking import drive

__all__ = ["AsyncSessionLock", "AsyncTerm", "SessionLock", "Term", "over"]

_LOOK = 0.1


class _Carried(Held):
    """The part of a session lock or a term that needs no database."""

    _prefix = ""

    @property
    def key(self) -> str:
        """The caller's key."""
        return self._holding.names.outer(self._kept.want.key)

    @property
    def fencing_token(self) -> int | None:
        """Greater than that of every earlier grant of the key; ``None`` with ``fencing=False``."""
        return self._kept.token or None

    def _handle(self) -> LockHandle:
        self.check()
        if not self._kept.token:
            raise BackendUnsupported(
                f"lock {self.key!r} has no fencing token, so nothing can be proven: it was taken with "
                "fencing=False"
            )
        want = self._kept.want
        return LockHandle(True, self.key, want.owner, self._kept.expires_at, self._kept.token)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.key!r} token={self.fencing_token} {self._state}>"


class SessionLock(_Carried):
    """A session lock of the blocking form; a context manager that gives it back.

    Its block raises ``LeaseLost`` at the end where the lock was lost meanwhile; an exception of the body
    wins over everything met while the lock is given back.
    """

    def held(self) -> bool:
        """Ask the server whether this very session still holds the lock, and prolong it.

        Raises ``BackendUnavailable`` where no answer came and the lock is not lost yet.
        """
        return drive(self._keeper.prove(self._kept))

    def unlock(self) -> bool:
        """Give the lock back; ``False`` where it was already lost. Doing it again changes nothing.

        Raises ``BackendUnavailable`` where an open transaction keeps the row locked; it is then tried
        further in the background.
        """
        if not self._kept.ended:
            self._unlocked = drive(self._holding.release(self._kept))
        return self._unlocked

    def guard(self, session_or_connection: Any, /, *, at_most: Seconds | None = None) -> None:
        """Prove in the caller's transaction that the lock is held; see ``LockProvider.guard``."""
        self._guards.guard(session_or_connection, self._handle(), at_most=at_most)

    _unlocked = False

    def __enter__(self) -> Self:
        self.check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        drive(self._holding.end([self._kept], error))


class AsyncSessionLock(_Carried):
    """A session lock of the asyncio form; a context manager that gives it back.

    A loss cancels its body, and the block raises ``LeaseLost``; an exception of the body wins over
    everything met while the lock is given back.
    """

    async def held(self) -> bool:
        """Ask the server whether this very session still holds the lock, and prolong it.

        Raises ``BackendUnavailable`` where no answer came and the lock is not lost yet.
        """
        return await self._keeper.prove(self._kept)

    async def unlock(self) -> bool:
        """Give the lock back; ``False`` where it was already lost. Doing it again changes nothing.

        Raises ``BackendUnavailable`` where an open transaction keeps the row locked; it is then tried
        further in the background.
        """
        if not self._kept.ended:
            self._unlocked = await self._holding.release(self._kept)
        return self._unlocked

    async def guard(self, session_or_connection: Any, /, *, at_most: Seconds | None = None) -> None:
        """Prove in the caller's transaction that the lock is held; see ``LockProvider.guard``."""
        await self._guards.async_guard(session_or_connection, self._handle(), at_most=at_most)

    _unlocked = False

    async def __aenter__(self) -> Self:
        self.check()
        self._body = AsyncBody(self._holding)
        self._body.enter([self._kept])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._body.leave([self._kept], error)


class Term(_Carried):
    """One term of leadership in the blocking form: the callback of ``Elector.run`` gets it."""

    def __init__(
        self,
        holding: Holding,
        kept: Kept,
        guards: Guards | MemoryGuards,
        *,
        key: str,
        stop: threading.Event | None = None,
    ) -> None:
        # not watched: its elector gives it back, after this object may have gone
        super().__init__(holding, kept, guards, watched=False)
        self._key = key
        self._stop = stop
        self._finished = threading.Event()
        self._watcher: threading.Thread | None = None

    @property
    def key(self) -> str:
        """The key that was stood for."""
        return self._key

    @property
    def lost(self) -> bool:
        """Whether the term is over: lost, given up, or ended by ``stop``. Asks no database."""
        return self._finished.is_set() or self._stopped or super().lost

    def check(self) -> None:
        """Raise ``LeaseLost`` where the term is over. Asks no database."""
        if self.lost and not super().lost:
            raise _stopped(self._key)
        super().check()

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called once when the term is over, at once where it already is.

        It is called from the keeper's thread, or from whoever notices it first; what it raises is logged.
        """
        once = _Once(callback)
        super().on_lost(once)
        if self._stop is None:
            return
        # nobody can be told of a threading.Event but one who waits for it
        threading.Thread(target=self._tell, args=(once,), name="sqllocks-term", daemon=True).start()

    def guard(self, session_or_connection: Any, /, *, at_most: Seconds | None = None) -> None:
        """Prove in the caller's transaction that this term goes on; see ``LockProvider.guard``."""
        self._guards.guard(session_or_connection, self._handle(), at_most=at_most)

    def wait_lost(self, timeout: Seconds | None = None) -> bool:
        """Block until the term is over, or ``timeout`` seconds; return whether it is."""
        longest = checked_wait(timeout)
        lost = threading.Event()
        super().on_lost(lost.set)
        end = None if longest is None else clock.now() + longest
        while not self.lost:
            left = _LOOK if end is None else min(end - clock.now(), _LOOK)
            if left <= 0:
                return False
            lost.wait(left)
        return True

    @property
    def _stopped(self) -> bool:
        return self._stop is not None and self._stop.is_set()

    def _tell(self, once: _Once) -> None:
        assert self._stop is not None
        while not self._finished.is_set():
            if self._stop.wait(_LOOK):
                self._keeper.call(once)
                return


class AsyncTerm(_Carried):
    """One term of leadership in the asyncio form: the callback of ``AsyncElector.run`` gets it.

    When it is lost, the callback is cancelled.
    """

    def __init__(self, holding: Holding, kept: Kept, guards: Guards | MemoryGuards, *, key: str) -> None:
        # not watched: its elector gives it back, after this object may have gone
        super().__init__(holding, kept, guards, watched=False)
        self._key = key
        self._finished = asyncio.Event()

    @property
    def key(self) -> str:
        """The key that was stood for."""
        return self._key

    @property
    def lost(self) -> bool:
        """Whether the term is over: lost, given up, or ended by the outer stop. Asks no database."""
        return self._finished.is_set() or super().lost

    def check(self) -> None:
        """Raise ``LeaseLost`` where the term is over. Asks no database."""
        if self.lost and not super().lost:
            raise _stopped(self._key)
        super().check()

    async def guard(self, session_or_connection: Any, /, *, at_most: Seconds | None = None) -> None:
        """Prove in the caller's transaction that this term goes on; see ``LockProvider.guard``."""
        await self._guards.async_guard(session_or_connection, self._handle(), at_most=at_most)

    async def wait_lost(self, timeout: Seconds | None = None) -> bool:
        """Wait until the term is over, or ``timeout`` seconds; return whether it is."""
        loop, finished = asyncio.get_running_loop(), self._finished

        def tell() -> None:
            loop.call_soon_threadsafe(finished.set)

        self.on_lost(tell)
        try:
            async with asyncio.timeout(checked_wait(timeout)):
                await finished.wait()
        except TimeoutError:
            return self.lost
        return True


def over(term: Term | AsyncTerm) -> None:
    """Say that a term has ended; its elector does."""
    term._finished.set()  # pyright: ignore[reportPrivateUsage]


def _stopped(key: str) -> LeaseLost:
    return LeaseLost(
        f"the term of {key!r} is over: it was given up, or its elector was told to stop",
        details={"lock_key": key},
    )


class _Once:
    """A callback that two may call, and one does."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callbacks = [callback]

    def __call__(self) -> None:
        try:
            callback = self._callbacks.pop()  # one atomic step
        except IndexError:
            return
        callback()
