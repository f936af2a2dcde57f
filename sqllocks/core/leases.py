"""The decisions behind every lease provider, in either form and on every backend."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from typing import Literal, cast

from sqllocks.backends.base import LeaseBackend
from sqllocks.backends.port import Clock
from sqllocks.core.faults import as_error
from sqllocks.core.insist import Patience, insist, persist
from sqllocks.dialects.base import Answer, Fault, FaultKind, StoredLock, Verdict, Want
from sqllocks.errors import BackendUnavailable, LockError, LockNotAcquired, LockTimeout
from sqllocks.model import LockHandle, LockInfo, Seconds
from sqllocks.naming import default_holder
from sqllocks.policy import (
    BUSY_PATIENCE,
    RELEASE_PATIENCE,
    SINGLE_WRITER_PATIENCE,
    WAIT_CEILING,
    WAIT_FLOOR,
    checked_holder,
    checked_key,
    checked_namespace,
    checked_owner,
    checked_prefix,
    checked_ttl,
    checked_wait,
    fresh_token,
)

__all__ = ["Leases"]

logger = logging.getLogger("sqllocks")


class Leases:
    """Acquire, release, extend and look at leases; the facades run these coroutines."""

    def __init__(
        self, clock: Clock, backend: LeaseBackend, *, namespace: str = "", holder: str | None = None
    ) -> None:
        self._clock = clock
        self._backend = backend
        self._namespace = checked_namespace(namespace)
        self._holder = checked_holder(holder) if holder is not None else None
        single_writer = backend.capabilities.single_writer
        self._claim_patience = SINGLE_WRITER_PATIENCE if single_writer else BUSY_PATIENCE

    # -- acquire

    async def acquire(self, lock_key: str, *, ttl: Seconds, owner_token: str | None = None) -> LockHandle:
        return await self._claim(self._want(lock_key, ttl, owner_token))

    async def require_acquire(
        self, lock_key: str, *, ttl: Seconds, owner_token: str | None = None, wait: Seconds | None = 0
    ) -> LockHandle:
        longest = checked_wait(wait)
        want = self._want(lock_key, ttl, owner_token)
        if longest != 0:
            return await self._wait_for(want, longest)
        handle = await self._claim(want)
        if handle.acquired:
            return handle
        raise LockNotAcquired(
            f"lock {lock_key!r} is held by somebody else until {handle.expires_at.isoformat()}",
            details={"lock_key": lock_key},
        )

    async def _claim(self, want: Want) -> LockHandle:
        try:
            patience = Patience(self._clock, self._claim_patience)
            answers = await insist(patience, self._backend.claim, [want])
        except GeneratorExit:
            raise
        except Fault as fault:
            if fault.sent and fault.kind in (FaultKind.GONE, FaultKind.OTHER):
                await self._give_back(want)
            return await self._claim_fault(want, fault)
        except BaseException:
            await self._give_back(want)
            raise
        return self._handle(want, answers[want.key])

    def _handle(self, want: Want, answer: Answer) -> LockHandle:
        if answer.expires_at is None:
            # the row appears to exist for inserts but not for reads: somebody inserted it and is not done
            fault = Fault(FaultKind.CONFLICT, "the row of the key is being inserted by an open transaction")
            raise self._error(fault, "acquire", want.key)
        # a row that was locked by an open transaction all the time is pinned: held
        acquired = answer.verdict is Verdict.DONE
        return LockHandle(acquired, self._outer(want.key), want.owner, answer.expires_at, answer.token)

    async def _claim_fault(self, want: Want, fault: Fault) -> LockHandle:
        """Say "held" where a look shows an unexpired lease; unknown is never reported as busy."""
        if fault.kind is FaultKind.CONFLICT:
            row = await self._look(want.key)
            if row is not None and row.held:
                return self._handle(want, Answer(Verdict.REFUSED, row.token, row.expires_at))
        raise self._error(fault, "acquire", want.key) from fault.__cause__

    async def _look(self, key: str) -> StoredLock | None:
        try:
            return (await self._backend.read([key])).get(key)
        except Fault:
            return None

    async def _give_back(self, want: Want) -> None:
        """Undo a grant that may have happened; its ttl is the last net."""

        async def undo() -> None:
            try:
                await insist(Patience(self._clock, RELEASE_PATIENCE), self._backend.release, [want])
            except Fault as fault:
                logger.warning(
                    "lock %r may stay taken until its ttl is over: %s", self._outer(want.key), fault.message
                )

        await self._clock.shielded(undo())

    # -- wait

    async def _wait_for(self, want: Want, longest: float | None) -> LockHandle:
        started = self._clock.now()
        pause = WAIT_FLOOR
        row: StoredLock | None = None
        while True:
            error: LockError | None = None
            try:
                if row is not None:  # look before the next try: a look writes nothing
                    row = await self._one(want.key, "wait for")
                if row is None or not row.held:
                    handle = await self._claim(want)
                    if handle.acquired:
                        return handle
                    row = await self._one(want.key, "wait for")
            except BackendUnavailable as unavailable:  # it may pass before the wait is over
                error = unavailable
            left = None if longest is None else started + longest - self._clock.now()
            if left is not None and left <= 0:
                raise error or self._timeout(want, row, longest)
            await self._clock.sleep(_nap(pause, left, row))
            pause = min(pause * 1.5, WAIT_CEILING)

    def _timeout(self, want: Want, row: StoredLock | None, waited: float | None) -> LockTimeout:
        key = self._outer(want.key)
        holder = "somebody else"
        if row is not None:
            until = "" if row.held else "; an open transaction pins its row"
            since, expires = row.acquired_at.isoformat(), row.expires_at.isoformat()
            holder = f"{row.holder!r} since {since} (expires {expires}{until})"
        return LockTimeout(
            f"lock {key!r} is still held after a wait of {waited:g} s: by {holder}", details={"lock_key": key}
        )

    # -- release and extend

    async def release(self, lock_key: str, *, owner_token: str) -> bool:
        want = Want(self._key(lock_key), checked_owner(owner_token))
        try:
            return await self._release(want)
        except (GeneratorExit, LockError):
            raise
        except BaseException:
            await self._give_back(want)
            raise

    async def _release(self, want: Want) -> bool:
        patience = Patience(self._clock, RELEASE_PATIENCE)
        try:
            answers = await insist(patience, self._backend.release, [want])
            verdict = answers[want.key].verdict
            if verdict is Verdict.REFUSED and patience.doubt:
                # the first answer was lost: the row tells whether that release was carried out
                row = (await persist(patience, lambda: self._backend.read([want.key]))).get(want.key)
                return row is not None and row.owner == want.owner and row.attempt == ""
        except Fault as fault:
            raise self._unsettled(fault, "release", want.key) from fault.__cause__
        self._check_settled(verdict, "release", want.key)
        return verdict is Verdict.DONE

    async def extend(self, lock_key: str, *, owner_token: str, ttl: Seconds) -> LockHandle | None:
        want = Want(self._key(lock_key), checked_owner(owner_token), ttl=checked_ttl(ttl))
        try:
            patience = Patience(self._clock, RELEASE_PATIENCE)
            answers = await insist(patience, self._backend.renew, [want])
        except Fault as fault:
            raise self._unsettled(fault, "extend", want.key) from fault.__cause__
        answer = answers[want.key]
        self._check_settled(answer.verdict, "extend", want.key)
        return self._handle(want, answer) if answer.verdict is Verdict.DONE else None

    async def break_lock(self, lock_key: str) -> bool:
        # a new owner token: the former holder's release must not look like a success
        want = Want(self._key(lock_key), fresh_token())
        try:
            answers = await insist(Patience(self._clock, RELEASE_PATIENCE), self._backend.break_, [want])
        except Fault as fault:
            raise self._unsettled(fault, "break", want.key) from fault.__cause__
        verdict = answers[want.key].verdict
        self._check_settled(verdict, "break", want.key)
        return verdict is Verdict.DONE

    def _check_settled(self, verdict: Verdict, doing: str, key: str) -> None:
        if verdict is Verdict.SKIPPED:
            raise BackendUnavailable(
                f"could not {doing} {self._outer(key)!r}: an open transaction has had its row locked for "
                f"{RELEASE_PATIENCE:g} s. End that transaction, or let the ttl run out.",
                details={"lock_key": self._outer(key), "outcome": "pending"},
            )

    # -- look

    async def locked(self, lock_key: str) -> bool:
        row = await self._one(self._key(lock_key), "look at")
        return row is not None and row.held

    async def inspect(self, lock_key: str) -> LockInfo | None:
        row = await self._one(self._key(lock_key), "look at")
        return self._info(row) if row is not None else None

    async def list_locks(self, *, prefix: str = "") -> list[LockInfo]:
        start = self._namespace + checked_prefix(prefix)
        patience = Patience(self._clock, RELEASE_PATIENCE)
        try:
            rows: Sequence[StoredLock] = await persist(patience, lambda: self._backend.list(start))
        except Fault as fault:
            raise as_error(fault, "list locks", self._backend.capabilities) from fault.__cause__
        return [self._info(row) for row in rows]

    async def create_table(self) -> None:
        try:
            await persist(Patience(self._clock, RELEASE_PATIENCE), self._backend.create_table)
        except Fault as fault:
            doing = f"create the table {self._backend.capabilities.table}"
            raise as_error(fault, doing, self._backend.capabilities) from fault.__cause__

    async def _one(self, key: str, doing: str) -> StoredLock | None:
        patience = Patience(self._clock, RELEASE_PATIENCE)
        try:
            return (await persist(patience, lambda: self._backend.read([key]))).get(key)
        except Fault as fault:
            raise self._error(fault, doing, key) from fault.__cause__

    # -- names and errors

    def _want(self, lock_key: str, ttl: Seconds, owner_token: str | None) -> Want:
        owner = fresh_token() if owner_token is None else checked_owner(owner_token)
        holder = self._holder or default_holder()
        return Want(self._key(lock_key), owner, fresh_token(), checked_ttl(ttl), holder)

    def _key(self, lock_key: str) -> str:
        return checked_key(lock_key, namespace=self._namespace)

    def _outer(self, key: str) -> str:
        return key[len(self._namespace) :]

    def _info(self, row: StoredLock) -> LockInfo:
        kind = cast("Literal['lease', 'session']", row.kind)
        return LockInfo(
            self._outer(row.key), kind, row.holder, row.held, row.token, row.acquired_at, row.expires_at
        )

    def _error(self, fault: Fault, doing: str, key: str) -> LockError:
        outer = self._outer(key)
        return as_error(fault, f"{doing} {outer!r}", self._backend.capabilities, lock_key=outer)

    def _unsettled(self, fault: Fault, doing: str, key: str) -> LockError:
        error = self._error(fault, doing, key)
        if isinstance(error, BackendUnavailable):
            error.details["outcome"] = "pending" if fault.kind is FaultKind.CONFLICT else "unknown"
        return error


def _nap(pause: float, left: float | None, row: StoredLock | None) -> float:
    """The next pause of a waiter: with jitter, not past its deadline, nor the lease's expiry."""
    nap = pause * random.uniform(0.5, 1.0)  # noqa: S311 - nothing secret
    if row is not None and row.held:
        nap = min(nap, max((row.expires_at - row.seen_at).total_seconds(), WAIT_FLOOR))
    return nap if left is None else min(nap, left)
