"""The two forms of session locks over one core: what every locker of a form has in common."""

from __future__ import annotations

from sqllocks.closing import AsyncCloses, Closes
from sqllocks.core.locking import Seat
from sqllocks.fencing import Guards, MemoryGuards
from sqllocks.model import LockInfo, Seconds
from sqllocks.policy import checked_wait
from sqllocks.protocols import AsyncLocker, Locker
from sqllocks.runtime.blocking import drive
from sqllocks.session_lock import AsyncSessionLock, SessionLock

__all__ = ["AsyncioLocker", "BlockingLocker"]


class BlockingLocker(Closes, Locker):
    """The blocking form over the core."""

    _seat: Seat
    _guards: Guards | MemoryGuards

    def lock(self, key: str, *, wait: Seconds | None = None) -> SessionLock:
        longest = checked_wait(wait)
        return SessionLock(self._seat.holding, drive(self._seat.take(key, longest)), self._guards)

    def try_lock(self, key: str) -> SessionLock | None:
        kept = drive(self._seat.take_now(key))
        return SessionLock(self._seat.holding, kept, self._guards) if kept is not None else None

    def inspect(self, key: str) -> LockInfo | None:
        return drive(self._seat.leases.inspect(key))

    def list_locks(self, *, prefix: str = "") -> list[LockInfo]:
        return drive(self._seat.leases.list_locks(prefix=prefix))

    def create_table(self) -> None:
        drive(self._seat.leases.create_table())


class AsyncioLocker(AsyncCloses, AsyncLocker):
    """The asyncio form over the core."""

    _seat: Seat
    _guards: Guards | MemoryGuards

    async def lock(self, key: str, *, wait: Seconds | None = None) -> AsyncSessionLock:
        longest = checked_wait(wait)
        return AsyncSessionLock(self._seat.holding, await self._seat.take(key, longest), self._guards)

    async def try_lock(self, key: str) -> AsyncSessionLock | None:
        kept = await self._seat.take_now(key)
        return AsyncSessionLock(self._seat.holding, kept, self._guards) if kept is not None else None

    async def inspect(self, key: str) -> LockInfo | None:
        return await self._seat.leases.inspect(key)

    async def list_locks(self, *, prefix: str = "") -> list[LockInfo]:
        return await self._seat.leases.list_locks(prefix=prefix)

    async def create_table(self) -> None:
        await self._seat.leases.create_table()
