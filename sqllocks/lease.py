"""What `hold` yields: a lease that is renewed in the background and knows when it is lost."""

from __future__ import annotations

import asyncio
import sys
import weakref
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Generic, TypeVar

from sqlalchemy import ColumnElement

from sqllocks.core.claiming import Grant
from sqllocks.core.holding import Holding
from sqllocks.core.keeping import Keeper
from sqllocks.core.kept import Kept
from sqllocks.core.leases import Leases
from sqllocks.dialects.base import Want
from sqllocks.fencing import Guards, MemoryGuards
from sqllocks.model import LockHandle, Seconds
from sqllocks.runtime.blocking import drive

__all__ = ["AsyncBody", "AsyncHold", "AsyncHoldMany", "AsyncLease", "Held", "Hold", "HoldMany", "Lease"]

# One process may hold 100,000 leases, and each has one object of most classes here: so they have slots, and
# nothing is made for each that one of them can remember. Together this halves what a held lease takes.

L = TypeVar("L", bound="_Local")


class Held:
    """What every lock that is looked after knows without the database, by the local monotonic clock."""

    __slots__ = ("__weakref__", "_guards", "_holding", "_kept")

    def __init__(
        self, holding: Holding, kept: Kept, guards: Guards | MemoryGuards, *, watched: bool = True
    ) -> None:
        self._holding = holding
        self._kept = kept
        self._guards = guards
        if watched:
            # the keeper knows `kept` alone, so this object can be collected, and then the lock is given back
            _watch(self, holding.keeper, kept)

    @property
    def lost(self) -> bool:
        """Whether the lock ended before it was given back. Asks no database; never turns false again."""
        return self._keeper.is_lost(self._kept)

    @property
    def remaining(self) -> float:
        """Seconds for which it may still be trusted without another renewal; 0 after its end."""
        return 0.0 if self._kept.ended else self._keeper.remaining(self._kept)

    def check(self) -> None:
        """Raise ``LeaseLost`` where the lock is lost or was given back. Asks no database."""
        self._holding.check(self._kept)

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called once when the lock is lost, at once where it already is.

        It is called from the keeper's thread or task, or from whoever notices the loss first; what it
        raises is logged.
        """
        self._holding.on_lost(self._kept, callback)

    @property
    def _keeper(self) -> Keeper:
        return self._holding.keeper

    @property
    def _state(self) -> str:
        return "given back" if self._kept.ended else "lost" if self._kept.lost else "held"


class _Watch(weakref.ref[Held]):
    """Tells the keeper that nobody has the object of a lock any more.

    ``weakref.finalize`` does the same for 550 bytes each instead of 150.
    """

    __slots__ = ("keeper", "kept")
    keeper: Keeper
    kept: Kept


def _watch(held: Held, keeper: Keeper, kept: Kept) -> None:
    watch = _Watch(held, _gone)
    watch.keeper, watch.kept = keeper, kept
    keeper.watches.add(watch)


def _gone(watch: weakref.ref[Held], is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
    # at the end of the process there is nobody to give it back; by then the names of modules may be gone too
    if is_finalizing() or not isinstance(watch, _Watch):
        return
    watch.keeper.watches.discard(watch)
    watch.keeper.dropped(watch.kept)


class _Local(Held):
    """The part of a lease that needs no database."""

    __slots__ = ()

    @property
    def acquired(self) -> bool:
        """Always true: a lease was granted."""
        return True

    @property
    def lock_key(self) -> str:
        """The caller's key."""
        return self._holding.names.outer(self._kept.want.key)

    @property
    def owner_token(self) -> str:
        """The owner token of this grant."""
        return self._kept.want.owner

    @property
    def fencing_token(self) -> int:
        """Greater than that of every earlier grant of the key."""
        return self._kept.token

    @property
    def expires_at(self) -> datetime:
        """The expiry by the database's clock, as the last renewal is known to have set it (aware, UTC)."""
        return self._kept.expires_at

    def fenced(self) -> ColumnElement[bool]:
        """Return the proof of holding as a condition for a WHERE clause; see ``LockProvider.fenced``."""
        return self._guards.fenced(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.lock_key!r} token={self.fencing_token} {self._state}>"


class Lease(_Local):
    """A lease of the blocking form; see ``LockProvider.hold``."""

    __slots__ = ()

    def extend(self, *, ttl: Seconds) -> LockHandle:
        """Set the expiry to now + ``ttl``, and renew with that ttl from now on.

        Returns the handle with the new expiry. Raises ``LeaseLost``, or ``BackendUnavailable`` as
        ``LockProvider.extend`` does.
        """
        return drive(self._holding.extend(self._kept, ttl))

    def guard(self, session_or_connection: Any, /, *, at_most: Seconds | None = None) -> None:
        """Prove in the caller's transaction that the lease is held; see ``LockProvider.guard``."""
        self.check()
        self._guards.guard(session_or_connection, self, at_most=at_most)

    def release(self) -> bool:
        """Give the lease back before the end of the block; ``False`` where it was lost or is given back.

        Raises ``BackendUnavailable`` where it could not be settled; it is then tried further in the
        background.
        """
        return drive(self._holding.release(self._kept))


class AsyncLease(_Local):
    """A lease of the asyncio form; see ``AsyncLockProvider.hold``."""

    __slots__ = ()

    async def extend(self, *, ttl: Seconds) -> LockHandle:
        """Set the expiry to now + ``ttl``, and renew with that ttl from now on.

        Returns the handle with the new expiry. Raises ``LeaseLost``, or ``BackendUnavailable`` as
        ``LockProvider.extend`` does.
        """
        return await self._holding.extend(self._kept, ttl)

    async def guard(self, session_or_connection: Any, /, *, at_most: Seconds | None = None) -> None:
        """Prove in the caller's transaction that the lease is held; see ``LockProvider.guard``."""
        self.check()
        await self._guards.async_guard(session_or_connection, self, at_most=at_most)

    async def release(self) -> bool:
        """Give the lease back before the end of the block; ``False`` where it was lost or is given back.

        Raises ``BackendUnavailable`` where it could not be settled; it is then tried further in the
        background.
        """
        return await self._holding.release(self._kept)


class _Block(Generic[L]):
    """One use of `hold` or `hold_many`."""

    __slots__ = ("_at_least", "_guards", "_held", "_holding", "_leases", "_longest", "_renew", "_wants")

    def __init__(
        self,
        leases: Leases,
        holding: Holding,
        guards: Guards | MemoryGuards,
        wants: Sequence[Want],
        longest: float | None,
        *,
        renew: bool,
        at_least: int,
    ) -> None:
        self._leases = leases
        self._holding = holding
        self._guards = guards
        self._wants = wants
        self._longest = longest
        self._renew = renew
        self._at_least = at_least
        # a block without "as" must not lose its lease to the garbage collector
        self._held: Sequence[L] = ()

    def _take(self) -> Coroutine[Any, Any, list[Grant]]:
        if self._held:
            raise RuntimeError("this block was entered already; call hold() once for each use")
        return self._leases.grant_many(self._wants, self._longest)

    def _begin(self, grants: Sequence[Grant], make: type[L]) -> Sequence[L]:
        everything = [
            self._holding.begin(grant, renew=self._renew, at_least=self._at_least) for grant in grants
        ]
        self._held = tuple([make(self._holding, kept, self._guards) for kept in everything])
        self._wants = ()
        return self._held

    @property
    def _kept(self) -> list[Kept]:
        return [lease._kept for lease in self._held]  # pyright: ignore[reportPrivateUsage]


class _BlockingBlock(_Block[Lease]):
    __slots__ = ()

    def _enter(self) -> Sequence[Lease]:
        return self._begin(drive(self._take()), Lease)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        drive(self._holding.end(self._kept, error))


class Hold(_BlockingBlock):
    """The context manager of ``hold`` in the blocking form."""

    __slots__ = ()

    def __enter__(self) -> Lease:
        return self._enter()[0]


class HoldMany(_BlockingBlock):
    """The context manager of ``hold_many`` in the blocking form."""

    __slots__ = ()

    def __enter__(self) -> list[Lease]:
        return list(self._enter())


class AsyncBody:
    """The body of an asyncio block: the loss of one of its locks cancels it.

    It takes the care of ``asyncio.timeout``: only a cancellation of its own becomes ``LeaseLost``, and
    the task's count of cancellations is right afterwards.
    """

    __slots__ = ("__weakref__", "_before", "_cancelled", "_holding", "_inside", "_task")

    def __init__(self, holding: Holding) -> None:
        self._holding = holding
        self._task: asyncio.Task[Any] | None = None
        self._before = 0
        self._inside = False
        self._cancelled = False

    def enter(self, block: Sequence[Kept]) -> None:
        """Begin the body in the present task."""
        self._task = asyncio.current_task()
        self._before = self._task.cancelling() if self._task else 0
        self._inside = True
        cancel = _Cancel(self)
        for kept in block:
            self._holding.on_lost(kept, cancel)

    async def leave(self, block: Sequence[Kept], error: BaseException | None) -> None:
        """End the body: give back, and raise ``LeaseLost`` in the place of a cancellation by the loss."""
        self._inside = False
        ours = self._take_back_cancel()
        if ours and error is None:
            await self._swallow_cancel()
        cancelled = error if ours and isinstance(error, asyncio.CancelledError) else None
        await self._holding.end(block, None if cancelled else error, cause=cancelled)

    def cancel(self) -> None:
        """Cancel the body where it has not ended; from any thread, a finalizer's for example."""
        if self._task is not None:
            self._task.get_loop().call_soon_threadsafe(self._cancel_task)

    def _cancel_task(self) -> None:
        if self._inside and not self._cancelled and self._task is not None:
            self._cancelled = True
            self._task.cancel()

    def _take_back_cancel(self) -> bool:
        """Return whether the body was cancelled by its loss alone, not by anybody else as well."""
        if not self._cancelled or self._task is None:
            return False
        return self._task.uncancel() <= self._before

    async def _swallow_cancel(self) -> None:
        # the body ended before its cancellation reached it; before 3.13 it would hit the next await
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if self._task is not None and self._task.cancelling() > self._before:
                raise


class _Cancel:
    """Cancels a body when it is called.

    Weak: the task may have the lock as its result, and a lock must be collected when nobody has it.
    (``weakref.WeakMethod`` takes 450 bytes more.)
    """

    __slots__ = ("_body",)

    def __init__(self, body: AsyncBody) -> None:
        self._body = weakref.ref(body)

    def __call__(self) -> None:
        body = self._body()
        if body is not None:
            body.cancel()


class _AsyncBlock(_Block[AsyncLease]):
    __slots__ = ("_body",)

    async def _enter(self) -> Sequence[AsyncLease]:
        held = self._begin(await self._take(), AsyncLease)
        self._body = AsyncBody(self._holding)
        self._body.enter(self._kept)
        return held

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._body.leave(self._kept, error)


class AsyncHold(_AsyncBlock):
    """The context manager of ``hold`` in the asyncio form."""

    __slots__ = ()

    async def __aenter__(self) -> AsyncLease:
        return (await self._enter())[0]


class AsyncHoldMany(_AsyncBlock):
    """The context manager of ``hold_many`` in the asyncio form."""

    __slots__ = ()

    async def __aenter__(self) -> list[AsyncLease]:
        return list(await self._enter())
