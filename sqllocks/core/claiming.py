"""Claiming keys: what counts as held, and what is given back."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from sqllocks.backends.base import Answers, LeaseBackend, Stored
from sqllocks.backends.port import Clock
from sqllocks.core.insist import Patience, all_done, insist
from sqllocks.core.naming import Names
from sqllocks.core.releasing import Releases
from sqllocks.dialects.base import REFUSALS, Answer, Fault, FaultKind, StoredLock, Verdict, Want
from sqllocks.errors import LockError
from sqllocks.model import LockHandle
from sqllocks.policy import (
    BUSY_PATIENCE,
    RETRY_PAUSE,
    SINGLE_WRITER_PATIENCE,
    SINGLE_WRITER_PAUSE,
)

__all__ = ["Claims", "Grant"]


class Grant(NamedTuple):
    """The answer to a claim that was first sent at ``sent`` by the local clock."""

    want: Want
    handle: LockHandle
    sent: float
    busy: bool = False
    """Somebody else holds this very key (of several that were asked for together)."""

    @property
    def acquired(self) -> bool:
        return self.handle.acquired


class Claims:
    """Ask for keys once, all or none; a claim that is interrupted leaves nothing behind."""

    def __init__(self, clock: Clock, backend: LeaseBackend, names: Names, releases: Releases) -> None:
        self._clock = clock
        self._backend = backend
        self._names = names
        self._releases = releases
        single_writer = backend.capabilities.single_writer
        self._patience = SINGLE_WRITER_PATIENCE if single_writer else BUSY_PATIENCE
        self._pause = SINGLE_WRITER_PAUSE if single_writer else RETRY_PAUSE

    async def claim(self, want: Want, *, insistent: bool = True) -> Grant:
        """Return a granted lease, or the present holder's token and expiry."""
        return (await self.claim_all([want], insistent=insistent))[0]

    async def claim_all(self, wants: Sequence[Want], *, insistent: bool = True) -> list[Grant]:
        """Return a grant for each key, or one that is not acquired for each.

        A locked row is asked again for a while, unless the caller comes back by itself.
        """
        sent = self._clock.now()
        outcome: Answers | Fault
        try:
            # once right here, because nearly every call ends with that, and each coroutine costs it something
            try:
                outcome = await self._backend.claim(wants)
            except Fault as fault:
                outcome = fault
            if not isinstance(outcome, Fault) and all_done(outcome, wants):
                return [self._grant(want, outcome[want.key], sent) for want in wants]
            return await self._claim_on(wants, outcome, sent, insistent=insistent)
        except (GeneratorExit, LockError):
            raise
        except BaseException:
            await self.undo(wants)
            raise

    async def _claim_on(
        self, wants: Sequence[Want], outcome: Answers | Fault, sent: float, *, insistent: bool
    ) -> list[Grant]:
        """Ask again for what was left open, and give back what was won beside a key that is held."""
        patience = Patience(self._clock, self._patience, pause=self._pause)
        try:
            answers = await insist(patience, self._backend.claim, wants, outcome, skipped=insistent)
        except Fault as fault:
            answers = await self._after_fault(wants, fault, doubt=patience.doubt)
        if all_done(answers, wants):
            return [self._grant(want, answers[want.key], sent) for want in wants]
        won = [want for want in wants if answers[want.key].verdict is Verdict.DONE]
        if won:
            await self.undo(won)
        self._refuse_unknown(wants, answers)
        return [
            self._grant(want, answers[want.key], sent, acquired=False, busy=want not in won) for want in wants
        ]

    async def undo(self, wants: Sequence[Want]) -> None:
        """Give back what was granted, or may have been."""
        # a release reads its ttl as a minimum hold
        await self._releases.give_back(*(want._replace(ttl=0) for want in wants))

    def _grant(
        self, want: Want, answer: Answer, sent: float, *, acquired: bool = True, busy: bool = False
    ) -> Grant:
        assert answer.expires_at is not None
        key = self._names.outer(want.key)
        return Grant(want, LockHandle(acquired, key, want.owner, answer.expires_at, answer.token), sent, busy)

    def _refuse_unknown(self, wants: Sequence[Want], answers: Answers) -> None:
        """Tell a pinned row (locked by an open transaction all the time: held) from a row not seen."""
        for want in wants:
            if answers[want.key].expires_at is None:
                # it exists for inserts but not for reads: somebody is about to insert it
                text = "the row of the key is being inserted by an open transaction"
                raise self._names.error(Fault(FaultKind.LOCKED, text), "acquire", want.key)

    async def _after_fault(self, wants: Sequence[Want], fault: Fault, *, doubt: bool) -> Answers:
        """Settle by a look what a conflict left open; unknown is never reported as busy."""
        rows: Stored | None = None
        if fault.kind in REFUSALS:
            with suppress(Fault):
                rows = await self._backend.read([want.key for want in wants])
        if rows is not None and len(rows) == len(wants):
            # an earlier statement, or an earlier try, may have been carried out
            answers = {want.key: _seen(want, rows[want.key]) for want in wants}
            verdicts = [answer.verdict for answer in answers.values()]
            if Verdict.REFUSED in verdicts or Verdict.SKIPPED not in verdicts:
                return answers
        if doubt or (fault.kind in REFUSALS and _may_hold(wants, rows)):
            await self.undo(wants)
        raise self._names.error(fault, "acquire", wants[0].key) from fault.__cause__


def _seen(want: Want, row: StoredLock) -> Answer:
    verdict = Verdict.REFUSED if row.held else Verdict.SKIPPED
    if row.held and row.attempt == want.attempt:
        verdict = Verdict.DONE
    return Answer(verdict, row.token, row.expires_at)


def _may_hold(wants: Sequence[Want], rows: Stored | None) -> bool:
    """Tell whether a part of a claim that ended in a conflict may have been carried out."""
    if rows is None:
        return True
    return any((row := rows.get(want.key)) is not None and row.attempt == want.attempt for want in wants)
