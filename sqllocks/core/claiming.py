"""Claiming a key: what counts as held, and what is given back."""

from __future__ import annotations

from sqllocks.backends.base import LeaseBackend
from sqllocks.backends.port import Clock
from sqllocks.core.insist import Patience, insist
from sqllocks.core.naming import Names
from sqllocks.core.releasing import Releases
from sqllocks.dialects.base import Answer, Fault, FaultKind, StoredLock, Verdict, Want
from sqllocks.errors import LockError
from sqllocks.model import LockHandle
from sqllocks.policy import BUSY_PATIENCE, SINGLE_WRITER_PATIENCE

__all__ = ["Claims"]


class Claims:
    """Ask for a key once; a claim that is interrupted leaves nothing behind."""

    def __init__(self, clock: Clock, backend: LeaseBackend, names: Names, releases: Releases) -> None:
        self._clock = clock
        self._backend = backend
        self._names = names
        self._releases = releases
        single_writer = backend.capabilities.single_writer
        self._patience = SINGLE_WRITER_PATIENCE if single_writer else BUSY_PATIENCE

    async def claim(self, want: Want) -> LockHandle:
        """Return a true handle, or a false one with the present holder's token and expiry."""
        try:
            answers = await insist(Patience(self._clock, self._patience), self._backend.claim, [want])
        except (GeneratorExit, LockError):
            raise
        except Fault as fault:
            if fault.sent and fault.kind in (FaultKind.GONE, FaultKind.OTHER):
                await self._releases.give_back(want)
            return await self._after_fault(want, fault)
        except BaseException:
            await self._releases.give_back(want)
            raise
        return self._handle(want, answers[want.key])

    def _handle(self, want: Want, answer: Answer) -> LockHandle:
        if answer.expires_at is None:
            # the row appears to exist for inserts but not for reads: somebody inserted it and is not done
            fault = Fault(FaultKind.CONFLICT, "the row of the key is being inserted by an open transaction")
            raise self._names.error(fault, "acquire", want.key)
        # a row that was locked by an open transaction all the time is pinned: held
        acquired = answer.verdict is Verdict.DONE
        return LockHandle(acquired, self._names.outer(want.key), want.owner, answer.expires_at, answer.token)

    async def _after_fault(self, want: Want, fault: Fault) -> LockHandle:
        """Say "held" where a look shows an unexpired lease; unknown is never reported as busy."""
        if fault.kind is FaultKind.CONFLICT:
            row = await self._look(want.key)
            if row is not None and row.held:
                return self._handle(want, Answer(Verdict.REFUSED, row.token, row.expires_at))
        raise self._names.error(fault, "acquire", want.key) from fault.__cause__

    async def _look(self, key: str) -> StoredLock | None:
        try:
            return (await self._backend.read([key])).get(key)
        except Fault:
            return None
