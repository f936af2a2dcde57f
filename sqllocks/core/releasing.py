"""Giving a lease back, prolonging it, breaking it: changes of a row that somebody holds."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from sqllocks.backends.base import Answers, LeaseBackend
from sqllocks.backends.port import Clock
from sqllocks.core.insist import Patience, all_done, insist, persist
from sqllocks.core.naming import Names
from sqllocks.dialects.base import Answer, Fault, StoredLock, Verdict, Want
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

    async def release_all(self, wants: Sequence[Want]) -> list[bool]:
        """Free keys in one statement; ``False`` for one that its owner does not hold.

        What one of them meets does not keep the others. Carried on when interrupted.
        """
        outcome: Answers | Fault
        try:
            # once right here, because nearly every call ends with that, and each coroutine costs it something
            try:
                outcome = await self._backend.release(wants)
            except Fault as fault:
                outcome = fault
            if not isinstance(outcome, Fault) and all_done(outcome, wants):
                return [True] * len(wants)
            return await self._release_on(wants, outcome)
        except (GeneratorExit, LockError):
            raise
        except BaseException as interruption:
            if not await self.give_back(*wants):
                keys = ", ".join(repr(self._names.outer(want.key)) for want in wants)
                interruption.add_note(f"whether it was given back is unknown: lock {keys} may stay taken")
            raise

    async def _release_on(self, wants: Sequence[Want], outcome: Answers | Fault) -> list[bool]:
        patience = Patience(self._clock, RELEASE_PATIENCE)
        answers = await self._settled_all(patience, self._backend.release, wants, "release", outcome)
        done = {want.key for want in wants if answers[want.key].verdict is Verdict.DONE}
        if patience.doubt:
            done |= await self._carried_out(patience, [want for want in wants if want.key not in done])
        return [want.key in done for want in wants]

    async def _carried_out(
        self, patience: Patience, wants: Sequence[Want], doing: str = "release"
    ) -> set[str]:
        """Return the keys whose change was carried out although its answer was lost, by their rows."""
        if not wants:
            return set()
        try:
            rows = await persist(patience, lambda: self._backend.read([want.key for want in wants]))
        except Fault as fault:
            raise self._names.unsettled(fault, doing, wants[0].key) from fault.__cause__
        return {want.key for want in wants if (row := rows.get(want.key)) and _freed_by(want, row)}

    async def extend_all(self, wants: Sequence[Want]) -> list[LockHandle | None]:
        """Set the expiry of several leases in one statement."""
        patience = Patience(self._clock, RELEASE_PATIENCE)
        answers = await self._settled_all(patience, self._backend.renew, wants, "extend")
        return [self._extended(want, answers[want.key]) for want in wants]

    async def extend(self, want: Want) -> LockHandle | None:
        """Set the expiry to now + ttl; ``None`` where this owner does not hold the key."""
        patience = Patience(self._clock, RELEASE_PATIENCE)
        answer = await self._settled(patience, self._backend.renew, want, "extend")
        return self._extended(want, answer)

    def _extended(self, want: Want, answer: Answer) -> LockHandle | None:
        if answer.verdict is not Verdict.DONE or answer.expires_at is None:
            return None
        return LockHandle(True, self._names.outer(want.key), want.owner, answer.expires_at, answer.token)

    async def break_(self, want: Want) -> bool:
        """Free the key whoever holds it; ``False`` where nobody did."""
        patience = Patience(self._clock, RELEASE_PATIENCE)
        answer = await self._settled(patience, self._backend.break_, want, "break")
        if answer.verdict is Verdict.DONE or not patience.doubt:
            return answer.verdict is Verdict.DONE
        return bool(await self._carried_out(patience, [want], "break"))

    async def give_back(self, *wants: Want) -> bool:
        """Undo grants that may have happened, whatever is interrupted; the ttl is the last net.

        Returns whether it is known that none is left.
        """

        async def undo() -> bool:
            try:
                patience = Patience(self._clock, RELEASE_PATIENCE)
                answers = await insist(patience, self._backend.release, list(wants))
            except Fault as fault:
                left, why = list(wants), fault.message
            else:
                left = [want for want in wants if answers[want.key].verdict is Verdict.SKIPPED]
                why = "an open transaction has its row locked"
            if left:
                keys = ", ".join(repr(self._names.outer(want.key)) for want in left)
                logger.warning("lock %s may stay taken until its ttl is over: %s", keys, why)
            return not left

        return bool(await self._clock.shielded(undo()))

    async def _settled(self, patience: Patience, send: Send, want: Want, doing: str) -> Answer:
        return (await self._settled_all(patience, send, [want], doing))[want.key]

    async def _settled_all(
        self,
        patience: Patience,
        send: Send,
        wants: Sequence[Want],
        doing: str,
        first: Answers | Fault | None = None,
    ) -> Answers:
        try:
            answers = await insist(patience, send, wants, first)
        except Fault as fault:
            raise self._names.unsettled(fault, doing, wants[0].key) from fault.__cause__
        for want in wants:
            if answers[want.key].verdict is Verdict.SKIPPED:
                outer = self._names.outer(want.key)
                raise BackendUnavailable(
                    f"could not {doing} {outer!r}: an open transaction has had its row locked for "
                    f"{RELEASE_PATIENCE:g} s. End that transaction, or let the ttl run out.",
                    details={"lock_key": outer, "outcome": "pending"},
                )
        return answers


def _freed_by(want: Want, row: StoredLock) -> bool:
    if row.attempt == "":
        return row.owner == want.owner
    # a minimum hold is nobody's, but tells whose it was
    return want.attempt != "" and row.owner == f"released:{want.attempt}"
