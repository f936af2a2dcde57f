"""The decisions behind every lease provider, in either form and on every backend."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, cast

from sqllocks.backends.base import LeaseBackend
from sqllocks.backends.port import Background, Clock, Wakeups
from sqllocks.core.claiming import Claims, Grant
from sqllocks.core.faults import as_error, busy
from sqllocks.core.holding import Holding
from sqllocks.core.insist import Patience, persist
from sqllocks.core.keeping import Keeper
from sqllocks.core.lines import Lines
from sqllocks.core.naming import Names
from sqllocks.core.pinning import Pinning
from sqllocks.core.releasing import Releases
from sqllocks.core.several import Several
from sqllocks.core.waiting import Pace, Waiting
from sqllocks.dialects.base import Fault, StoredLock, Want
from sqllocks.errors import BackendUnavailable, LockTimeout
from sqllocks.model import LockHandle, LockInfo, Seconds
from sqllocks.policy import (
    LONGEST_RETRY,
    PURGE_SLICE,
    RELEASE_PATIENCE,
    checked_idle,
    checked_owner,
    checked_prefix,
    checked_ttl,
    checked_wait,
    fresh_token,
)

__all__ = ["Leases"]

_FOREVER = float("inf")
LOOK_PAUSE = 0.05
"""Seconds between two looks of one who may only look."""


class Leases:
    """Acquire, release, extend and look at leases; the facades run these coroutines."""

    def __init__(
        self,
        clock: Clock,
        backend: LeaseBackend,
        *,
        namespace: str = "",
        holder: str | None = None,
        lines: Lines | None = None,
        wakeups: Wakeups | None = None,
    ) -> None:
        self._clock = clock
        self._backend = backend
        self.names = Names(backend.capabilities, namespace=namespace, holder=holder)
        self.releases = Releases(clock, backend, self.names)
        self.claims = Claims(clock, backend, self.names, self.releases)
        lines = lines or Lines()
        backend.freed = lines.freed
        self._waiting = Waiting(clock, backend, self.claims, self.names, lines, wakeups=wakeups)
        self._several = Several(clock, self.claims, self._waiting)

    _keeper: Keeper | None = None
    pinning: Pinning

    def holding(self, background: Background) -> Holding:
        """Return what keeps leases, from an activity of its own."""
        keeper = self._keeper = Keeper(self._clock, self._backend, self.names, background)
        self.pinning = Pinning(self._clock, self._backend, keeper)
        return Holding(self._clock, keeper, self.pinning, self.releases, self.names)

    async def acquire(self, lock_key: str, *, ttl: Seconds, owner_token: str | None = None) -> LockHandle:
        return (await self.claims.claim_all([self._new(lock_key, ttl, owner_token)]))[0].handle

    def _new(self, lock_key: str, ttl: Seconds, owner_token: str | None) -> Want:
        want = self.names.want(lock_key, ttl, owner_token)
        if self._keeper is not None and owner_token is not None:
            self._keeper.release_no_more(want.key, want.owner)
        return want

    async def require_acquire(
        self, lock_key: str, *, ttl: Seconds, owner_token: str | None = None, wait: Seconds | None = 0
    ) -> LockHandle:
        longest = checked_wait(wait)
        return (await self.grant(self._new(lock_key, ttl, owner_token), longest)).handle

    async def grant(self, want: Want, longest: float | None, pace: Pace | None = None) -> Grant:
        """Take a lease or raise, waiting up to ``longest`` seconds."""
        if longest != 0:
            return await self._waiting.wait_for(want, longest, pace)
        grant = await self.claims.claim(want)
        if not grant.acquired:
            raise busy(grant.handle)
        return grant

    @property
    def single_writer(self) -> bool:
        """Whether one transaction that writes keeps everybody from the whole database."""
        return self._backend.capabilities.single_writer

    async def free(self, want: Want, longest: float | None) -> None:
        """Wait by looking alone until the key is free, or raise."""
        started = self._clock.now()
        while True:
            row = await self.one(want.key, "wait for")
            if row is None or not row.held:
                return
            refused = LockHandle(False, self.names.outer(want.key), want.owner, row.expires_at, row.token)
            if longest == 0:
                raise busy(refused)
            left = _FOREVER if longest is None else started + longest - self._clock.now()
            if left <= 0:
                raise LockTimeout(
                    f"lock {refused.lock_key!r} is still held after a wait of {longest:g} s: by "
                    f"{row.holder!r} since {row.acquired_at.isoformat()} "
                    f"(expires {row.expires_at.isoformat()})",
                    details={"lock_key": refused.lock_key},
                )
            await self._clock.sleep(min(LOOK_PAUSE, left))

    async def acquire_many(
        self, lock_keys: Iterable[str], *, ttl: Seconds, owner_token: str | None = None
    ) -> list[LockHandle]:
        wants = self.names.wants(lock_keys, ttl, owner_token)
        return [grant.handle for grant in await self.claims.claim_all(wants)]

    async def grant_many(self, wants: Sequence[Want], longest: float | None) -> list[Grant]:
        """Take all leases or none, or raise; see ``Several``."""
        return await self._several.grant(wants, longest)

    async def release_many(self, lock_keys: Iterable[str], *, owner_token: str) -> list[bool]:
        owner = checked_owner(owner_token)
        wants = [Want(key, owner) for key in self.names.inner_all(lock_keys)]
        return await self._released(wants)

    async def _released(self, wants: Sequence[Want]) -> list[bool]:
        """Release, and let the keeper go on trying what could not be settled."""
        try:
            return await self.releases.release_all(wants)
        except BackendUnavailable:
            for want in wants:
                await self._release_later(want)
            raise

    async def _release_later(self, want: Want) -> None:
        if self._keeper is None:
            return
        try:
            row = (await self._backend.read([want.key])).get(want.key)
        except Fault:
            # whose grant it will be by then is unknown; a new claim of this owner cancels it
            self._keeper.release_later(want, LONGEST_RETRY)
            return
        if row is not None and row.owner == want.owner and row.held:
            self._keeper.release_later(want._replace(attempt=row.attempt), LONGEST_RETRY)

    async def extend_many(
        self, lock_keys: Iterable[str], *, owner_token: str, ttl: Seconds
    ) -> list[LockHandle | None]:
        owner, microseconds = checked_owner(owner_token), checked_ttl(ttl)
        keys = self.names.inner_all(lock_keys)
        return await self.releases.extend_all([Want(key, owner, ttl=microseconds) for key in keys])

    async def release(self, lock_key: str, *, owner_token: str) -> bool:
        want = Want(self.names.inner(lock_key), checked_owner(owner_token))
        if self._keeper is not None and self.pinning.postponed(want):
            return True  # a guarded transaction of this process has it; done when that ends
        return (await self._released([want]))[0]

    async def extend(self, lock_key: str, *, owner_token: str, ttl: Seconds) -> LockHandle | None:
        want = Want(self.names.inner(lock_key), checked_owner(owner_token), ttl=checked_ttl(ttl))
        return await self.releases.extend(want)

    async def break_lock(self, lock_key: str) -> bool:
        row = await self.one(self.names.inner(lock_key), "break")
        if row is None or not row.held:
            return False
        # the grant that was seen, not one that began meanwhile; under a new owner token, so that the
        # former holder's release does not look like a success
        return await self.releases.break_(Want(row.key, fresh_token(), row.attempt))

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

    async def purge(self, *, idle: Seconds) -> int:
        span = checked_idle(idle)
        removed = 0
        try:
            while True:
                found = await persist(
                    self._patience(), lambda: self._backend.purge(self.names.namespace, span)
                )
                removed += found
                if found < PURGE_SLICE:
                    return removed
        except Fault as fault:
            raise as_error(fault, "purge free keys", self._backend.capabilities) from fault.__cause__

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
