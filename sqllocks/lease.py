"""What `hold` yields: a lease that is renewed in the background and knows when it is lost."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement

from sqllocks.core.holding import Holding
from sqllocks.core.keeping import Keeper
from sqllocks.core.kept import Kept
from sqllocks.fencing import Guards, MemoryGuards
from sqllocks.model import LockHandle, Seconds
from sqllocks.runtime.blocking import drive

__all__ = ["AsyncLease", "Held", "Lease"]


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
