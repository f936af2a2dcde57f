"""The decisions behind every lease provider, in either form and on every backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

from sqllocks.backends.base import LeaseBackend
from sqllocks.backends.port import Clock
from sqllocks.core.claiming import Claims
from sqllocks.core.faults import as_error
from sqllocks.core.insist import Patience, persist
from sqllocks.core.naming import Names
from sqllocks.core.releasing import Releases
from sqllocks.core.waiting import Waiting
from sqllocks.dialects.base import Fault, StoredLock, Want
from sqllocks.errors import LockNotAcquired
from sqllocks.model import LockHandle, LockInfo, Seconds
from sqllocks.policy import (
    RELEASE_PATIENCE,
    checked_owner,
    checked_prefix,
    checked_ttl,
    checked_wait,
    fresh_token,
)

__all__ = ["Leases"]


class Leases:
    """Acquire, release, extend and look at leases; the facades run these coroutines."""

    def __init__(
        self, clock: Clock, backend: LeaseBackend, *, namespace: str = "", holder: str | None = None
    ) -> None:
        self._clock = clock
        self._backend = backend
        self.names = Names(backend.capabilities, namespace=namespace, holder=holder)
        self.releases = Releases(clock, backend, self.names)
        self.claims = Claims(clock, backend, self.names, self.releases)
        self._waiting = Waiting(clock, self.claims, self.names, self.one)

    async def acquire(self, lock_key: str, *, ttl: Seconds, owner_token: str | None = None) -> LockHandle:
        return await self.claims.claim(self.names.want(lock_key, ttl, owner_token))

    async def require_acquire(
        self, lock_key: str, *, ttl: Seconds, owner_token: str | None = None, wait: Seconds | None = 0
    ) -> LockHandle:
        longest = checked_wait(wait)
        return await self.require(self.names.want(lock_key, ttl, owner_token), longest)

    async def require(self, want: Want, longest: float | None) -> LockHandle:
        """Take a lease or raise, waiting up to ``longest`` seconds."""
        if longest != 0:
            return await self._waiting.wait_for(want, longest)
        handle = await self.claims.claim(want)
        if handle.acquired:
            return handle
        raise LockNotAcquired(
            f"lock {handle.lock_key!r} is held by somebody else until {handle.expires_at.isoformat()}",
            details={"lock_key": handle.lock_key},
        )

    async def release(self, lock_key: str, *, owner_token: str) -> bool:
        return await self.releases.release(Want(self.names.inner(lock_key), checked_owner(owner_token)))

    async def extend(self, lock_key: str, *, owner_token: str, ttl: Seconds) -> LockHandle | None:
        want = Want(self.names.inner(lock_key), checked_owner(owner_token), ttl=checked_ttl(ttl))
        return await self.releases.extend(want)

    async def break_lock(self, lock_key: str) -> bool:
        # a new owner token: the former holder's release must not look like a success
        return await self.releases.break_(Want(self.names.inner(lock_key), fresh_token()))

    async def locked(self, lock_key: str) -> bool:
        row = await self.one(self.names.inner(lock_key), "look at")
        return row is not None and row.held

    async def inspect(self, lock_key: str) -> LockInfo | None:
        row = await self.one(self.names.inner(lock_key), "look at")
        return self._info(row) if row is not None else None

    async def list_locks(self, *, prefix: str = "") -> list[LockInfo]:
        start = self.names.namespace + checked_prefix(prefix)
        try:
            rows: Sequence[StoredLock] = await persist(self._patience(), lambda: self._backend.list(start))
        except Fault as fault:
            raise as_error(fault, "list locks", self._backend.capabilities) from fault.__cause__
        return [self._info(row) for row in rows]

    async def create_table(self) -> None:
        try:
            await persist(self._patience(), self._backend.create_table)
        except Fault as fault:
            doing = f"create the table {self._backend.capabilities.table}"
            raise as_error(fault, doing, self._backend.capabilities) from fault.__cause__

    async def one(self, key: str, doing: str) -> StoredLock | None:
        """Return the row of one key, or ``None``."""
        try:
            return (await persist(self._patience(), lambda: self._backend.read([key]))).get(key)
        except Fault as fault:
            raise self.names.error(fault, doing, key) from fault.__cause__

    def _patience(self) -> Patience:
        return Patience(self._clock, RELEASE_PATIENCE)

    def _info(self, row: StoredLock) -> LockInfo:
        kind = cast("Literal['lease', 'session']", row.kind)
        key = self.names.outer(row.key)
        return LockInfo(key, kind, row.holder, row.held, row.token, row.acquired_at, row.expires_at)
