"""Giving a lease back, prolonging it, breaking it: changes of a row that somebody holds."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from sqllocks.backends.base import Answers, LeaseBackend
from sqllocks.backends.port import Clock
from sqllocks.core.insist import Patience, insist, persist
from sqllocks.core.naming import Names
from sqllocks.dialects.base import Answer, Fault, Verdict, Want
from sqllocks.errors import BackendUnavailable, LockError
from sqllocks.model import LockHandle
from sqllocks.policy import RELEASE_PATIENCE

__all__ = ["Releases"]

logger = logging.getLogger("sqllocks")

Send = Callable[[Sequence[Want]], Awaitable[Answers]]


class Releases:
    """Changes that only apply to a lease that is still held; a locked row is asked again for 2 s."""

    def __init__(self, clock: Clock, backend: LeaseBackend, names: Names) -> None:
        self._clock = clock
        self._backend = backend
        self._names = names

    async def release(self, want: Want) -> bool:
        """Free the key; ``False`` where this owner does not hold it. Carried on when interrupted."""
        try:
            return await self._release(want)
        except (GeneratorExit, LockError):
            raise
        except BaseException:
            await self.give_back(want)
            raise

    async def _release(self, want: Want) -> bool:
        patience = Patience(self._clock, RELEASE_PATIENCE)
        answer = await self._settled(patience, self._backend.release, want, "release")
        if answer.verdict is Verdict.REFUSED and patience.doubt:
            # the first answer was lost: the row tells whether that release was carried out
            try:
                row = (await persist(patience, lambda: self._backend.read([want.key]))).get(want.key)
            except Fault as fault:
                raise self._names.unsettled(fault, "release", want.key) from fault.__cause__
            return row is not None and row.owner == want.owner and row.attempt == ""
        return answer.verdict is Verdict.DONE

    async def extend(self, want: Want) -> LockHandle | None:
        """Set the expiry to now + ttl; ``None`` where this owner does not hold the key."""
        patience = Patience(self._clock, RELEASE_PATIENCE)
        answer = await self._settled(patience, self._backend.renew, want, "extend")
        if answer.verdict is not Verdict.DONE or answer.expires_at is None:
            return None
        return LockHandle(True, self._names.outer(want.key), want.owner, answer.expires_at, answer.token)

    async def break_(self, want: Want) -> bool:
        """Free the key whoever holds it; ``False`` where nobody did."""
        patience = Patience(self._clock, RELEASE_PATIENCE)
        answer = await self._settled(patience, self._backend.break_, want, "break")
        return answer.verdict is Verdict.DONE

    async def give_back(self, want: Want) -> None:
        """Undo a grant that may have happened, whatever is interrupted; its ttl is the last net."""

        async def undo() -> None:
            try:
                await insist(Patience(self._clock, RELEASE_PATIENCE), self._backend.release, [want])
            except Fault as fault:
                key = self._names.outer(want.key)
                logger.warning("lock %r may stay taken until its ttl is over: %s", key, fault.message)

        await self._clock.shielded(undo())

    async def _settled(self, patience: Patience, send: Send, want: Want, doing: str) -> Answer:
        try:
            answer = (await insist(patience, send, [want]))[want.key]
        except Fault as fault:
            raise self._names.unsettled(fault, doing, want.key) from fault.__cause__
        if answer.verdict is Verdict.SKIPPED:
            outer = self._names.outer(want.key)
            raise BackendUnavailable(
                f"could not {doing} {outer!r}: an open transaction has had its row locked for "
                f"{RELEASE_PATIENCE:g} s. End that transaction, or let the ttl run out.",
                details={"lock_key": outer, "outcome": "pending"},
            )
        return answer
