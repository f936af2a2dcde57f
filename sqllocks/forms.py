"""The two forms over one core: what every provider of a form has in common."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any

from sqlalchemy import ColumnElement

from sqllocks.blocks import AsyncHold, AsyncHoldMany, Hold, HoldMany
from sqllocks.closing import AsyncCloses, Closes
from sqllocks.core.holding import Holding
from sqllocks.core.leases import Leases
from sqllocks.fencing import Guards, MemoryGuards
from sqllocks.lease import AsyncLease, Lease
from sqllocks.model import LockHandle, LockInfo, Seconds
from sqllocks.policy import checked_at_least, checked_wait
from sqllocks.protocols import AsyncLockProvider, LockProvider
from sqllocks.runtime.blocking import drive
from sqllocks.transactional import TransactionHolds

__all__ = ["AsyncioForm", "BlockingForm"]


class BlockingForm(Closes, LockProvider):
    """The blocking form over the core."""

    _leases: Leases
    _holding: Holding
    _guards: Guards | MemoryGuards
    _transactions: TransactionHolds

    def acquire(self, lock_key: str, *, ttl: Seconds, owner_token: str | None = None) -> LockHandle:
        return drive(self._leases.acquire(lock_key, ttl=ttl, owner_token=owner_token))

    def require_acquire(
        self, lock_key: str, *, ttl: Seconds, owner_token: str | None = None, wait: Seconds | None = 0
    ) -> LockHandle:
        return drive(self._leases.require_acquire(lock_key, ttl=ttl, owner_token=owner_token, wait=wait))

    def release(self, lock_key: str, *, owner_token: str) -> bool:
        return drive(self._leases.release(lock_key, owner_token=owner_token))

    def extend(self, lock_key: str, *, owner_token: str, ttl: Seconds) -> LockHandle | None:
        return drive(self._leases.extend(lock_key, owner_token=owner_token, ttl=ttl))

    def acquire_many(
        self, lock_keys: Iterable[str], *, ttl: Seconds, owner_token: str | None = None
    ) -> list[LockHandle]:
        return drive(self._leases.acquire_many(lock_keys, ttl=ttl, owner_token=owner_token))

    def extend_many(
        self, lock_keys: Iterable[str], *, owner_token: str, ttl: Seconds
    ) -> list[LockHandle | None]:
        return drive(self._leases.extend_many(lock_keys, owner_token=owner_token, ttl=ttl))

    def release_many(self, lock_keys: Iterable[str], *, owner_token: str) -> list[bool]:
        return drive(self._leases.release_many(lock_keys, owner_token=owner_token))

    def hold(
        self,
        lock_key: str,
        *,
        ttl: Seconds,
        wait: Seconds | None = 0,
        renew: bool = True,
        at_least: Seconds = 0,
    ) -> AbstractContextManager[Lease]:
        want, longest = self._leases.names.want(lock_key, ttl, None), checked_wait(wait)
        return Hold(
            self._leases,
            self._holding,
            self._guards,
            [want],
            longest,
            renew=renew,
            at_least=checked_at_least(at_least, want.ttl),
        )

    def hold_many(
        self,
        lock_keys: Iterable[str],
        *,
        ttl: Seconds,
        wait: Seconds | None = 0,
        renew: bool = True,
        at_least: Seconds = 0,
    ) -> AbstractContextManager[list[Lease]]:
        wants, longest = self._leases.names.wants(lock_keys, ttl, None), checked_wait(wait)
        return HoldMany(
            self._leases,
            self._holding,
            self._guards,
            wants,
            longest,
            renew=renew,
            at_least=checked_at_least(at_least, wants[0].ttl),
        )

    def hold_for_transaction(
        self, session: Any, lock_key: str, *, ttl: Seconds, wait: Seconds | None = 0
    ) -> LockHandle:
        return drive(self._transactions.hold(session, lock_key, ttl=ttl, wait=wait))

    def guard(
        self, session_or_connection: Any, handle: LockHandle, *, at_most: Seconds | None = None
    ) -> None:
        self._guards.guard(session_or_connection, handle, at_most=at_most)

    def fenced(self, handle: LockHandle) -> ColumnElement[bool]:
        return self._guards.fenced(handle)

    def purge(self, *, idle: Seconds) -> int:
        return drive(self._leases.purge(idle=idle))

    def locked(self, lock_key: str) -> bool:
        return drive(self._leases.locked(lock_key))

    def inspect(self, lock_key: str) -> LockInfo | None:
        return drive(self._leases.inspect(lock_key))

    def list_locks(self, *, prefix: str = "") -> list[LockInfo]:
        return drive(self._leases.list_locks(prefix=prefix))

    def break_lock(self, lock_key: str) -> bool:
        return drive(self._leases.break_lock(lock_key))

    def create_table(self) -> None:
        drive(self._leases.create_table())


class AsyncioForm(AsyncCloses, AsyncLockProvider):
    """The asyncio form over the core."""

    _leases: Leases
    _holding: Holding
    _guards: Guards | MemoryGuards
    _transactions: TransactionHolds

    async def acquire(self, lock_key: str, *, ttl: Seconds, owner_token: str | None = None) -> LockHandle:
        return await self._leases.acquire(lock_key, ttl=ttl, owner_token=owner_token)

    async def require_acquire(
        self, lock_key: str, *, ttl: Seconds, owner_token: str | None = None, wait: Seconds | None = 0
    ) -> LockHandle:
        return await self._leases.require_acquire(lock_key, ttl=ttl, owner_token=owner_token, wait=wait)

    async def release(self, lock_key: str, *, owner_token: str) -> bool:
        return await self._leases.release(lock_key, owner_token=owner_token)

    async def extend(self, lock_key: str, *, owner_token: str, ttl: Seconds) -> LockHandle | None:
        return await self._leases.extend(lock_key, owner_token=owner_token, ttl=ttl)

    async def acquire_many(
        self, lock_keys: Iterable[str], *, ttl: Seconds, owner_token: str | None = None
    ) -> list[LockHandle]:
        return await self._leases.acquire_many(lock_keys, ttl=ttl, owner_token=owner_token)

    async def extend_many(
        self, lock_keys: Iterable[str], *, owner_token: str, ttl: Seconds
    ) -> list[LockHandle | None]:
        return await self._leases.extend_many(lock_keys, owner_token=owner_token, ttl=ttl)

    async def release_many(self, lock_keys: Iterable[str], *, owner_token: str) -> list[bool]:
        return await self._leases.release_many(lock_keys, owner_token=owner_token)

    def hold(
        self,
        lock_key: str,
        *,
        ttl: Seconds,
        wait: Seconds | None = 0,
        renew: bool = True,
        at_least: Seconds = 0,
    ) -> AbstractAsyncContextManager[AsyncLease]:
        want, longest = self._leases.names.want(lock_key, ttl, None), checked_wait(wait)
        return AsyncHold(
            self._leases,
            self._holding,
            self._guards,
            [want],
            longest,
            renew=renew,
            at_least=checked_at_least(at_least, want.ttl),
        )

    def hold_many(
        self,
        lock_keys: Iterable[str],
        *,
        ttl: Seconds,
        wait: Seconds | None = 0,
        renew: bool = True,
        at_least: Seconds = 0,
    ) -> AbstractAsyncContextManager[list[AsyncLease]]:
        wants, longest = self._leases.names.wants(lock_keys, ttl, None), checked_wait(wait)
        return AsyncHoldMany(
            self._leases,
            self._holding,
            self._guards,
            wants,
            longest,
            renew=renew,
            at_least=checked_at_least(at_least, wants[0].ttl),
        )

    async def hold_for_transaction(
        self, session: Any, lock_key: str, *, ttl: Seconds, wait: Seconds | None = 0
    ) -> LockHandle:
        return await self._transactions.hold(session, lock_key, ttl=ttl, wait=wait)

    async def guard(
        self, session_or_connection: Any, handle: LockHandle, *, at_most: Seconds | None = None
    ) -> None:
        await self._guards.async_guard(session_or_connection, handle, at_most=at_most)

    def fenced(self, handle: LockHandle) -> ColumnElement[bool]:
        return self._guards.fenced(handle)

    async def purge(self, *, idle: Seconds) -> int:
        return await self._leases.purge(idle=idle)

    async def locked(self, lock_key: str) -> bool:
        return await self._leases.locked(lock_key)

    async def inspect(self, lock_key: str) -> LockInfo | None:
        return await self._leases.inspect(lock_key)

    async def list_locks(self, *, prefix: str = "") -> list[LockInfo]:
        return await self._leases.list_locks(prefix=prefix)

    async def break_lock(self, lock_key: str) -> bool:
        return await self._leases.break_lock(lock_key)

    async def create_table(self) -> None:
        await self._leases.create_table()
