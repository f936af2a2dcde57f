"""Providers with one mistake each in what they do between calls, which the explorer has to find."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any

from sqllocks.backends.base import Answers
from sqllocks.backends.lease_table import LeaseTable
from sqllocks.backends.port import Event
from sqllocks.core.claiming import Claims, Grant
from sqllocks.core.holding import Holding
from sqllocks.core.keeping import Keeper
from sqllocks.core.kept import Kept
from sqllocks.core.leases import Leases
from sqllocks.core.lines import Line, Lines
from sqllocks.core.pinning import Pinning
from sqllocks.dialects.base import Answer, Verdict, Want
from sqllocks.errors import BackendUnavailable
from sqllocks.policy import margin
from tests.exploration.families import Family
from tests.exploration.processes.port import ProcessPort
from tests.exploration.processes.programs import Makes, provider
from tests.exploration.table import Row, Rules, held

__all__ = [
    "Hasty",
    "Lazy",
    "Reviver",
    "believes_lost_answers",
    "deaf_lines",
    "drops_postponed_releases",
    "forgets_doubtful_releases",
    "forgets_minimum_holds",
    "ignores_its_clock",
    "ignores_refusals",
    "jumps_the_line",
    "keeps_a_part",
    "leaves_in_silence",
    "loses_at_the_first_fault",
    "overwrites_crossed_changes",
    "renews_without_alarm",
    "storms",
    "suspends_nothing",
    "tells_twice",
    "trusts_from_the_answer",
    "trusts_the_longer_ttl",
]


# -- databases


class Hasty(Rules):
    """A purge removes what became free just now."""

    def old(self, row: Row, idle: int, now: int) -> bool:
        return not held(row, now)


class Lazy(Rules):
    """A release does not mind the minimum hold."""

    def released(self, row: Row, want: Want, now: int) -> Row:
        return row._replace(attempt="", expires=now)


class Reviver(Rules):
    """The renewal after a guarded transaction takes the row whoever has it."""

    def revives(self, row: Row, want: Want, now: int) -> bool:
        return row.attempt != ""


# -- keepers


def _keeping(kind: type[Keeper], pins: type[Pinning] = Pinning, hold: type[Holding] = Holding) -> Makes:
    class Mutant(Leases):
        def holding(self, background: Any) -> Holding:
            keeper = self._keeper = kind(self._clock, self._backend, self.names, background)
            self.pinning = pins(self._clock, self._backend, keeper)
            return hold(self._clock, keeper, self.pinning, self.releases, self.names)

    return partial(provider, core=Mutant)


class _Deaf(Keeper):
    def is_lost(self, kept: Kept) -> bool:
        return bool(kept.lost)


class _Obstinate(Keeper):
    def _answered(self, kept: Kept, want: Want, sent: float, answer: Answer | None) -> None:
        if answer is not None and answer.verdict is Verdict.REFUSED:
            answer = Answer(Verdict.DONE)
        super()._answered(kept, want, sent, answer)


class _Trusting(Keeper):
    def _answered(self, kept: Kept, want: Want, sent: float, answer: Answer | None) -> None:
        super()._answered(kept, want, sent, answer or Answer(Verdict.DONE))


class _Faint(Keeper):
    def _answered(self, kept: Kept, want: Want, sent: float, answer: Answer | None) -> None:
        super()._answered(kept, want, sent, answer or Answer(Verdict.REFUSED))


class _Talkative(Keeper):
    def lose(self, kept: Kept, reason: str, **options: Any) -> bool:
        callbacks = list(kept.callbacks)
        lost = super().lose(kept, reason, **options)
        for callback in callbacks:
            self.call(callback)
        return lost


class _Silent(Keeper):
    def _expire(self) -> None:
        """Leave it to the answer."""


class _LastAnswerWins(Keeper):
    def renewed(self, kept: Kept, want: Want, sent: float, expires_at: datetime | None) -> None:
        kept.crossed = False
        super().renewed(kept, want, sent, expires_at)


class _Stormy(Keeper):
    def renewed(self, kept: Kept, want: Want, sent: float, expires_at: datetime | None) -> None:
        crossed = kept.crossed
        super().renewed(kept, want, sent, expires_at)
        if crossed and kept.renewed:
            kept.due = self._clock.now()


class _Oblivious(Keeper):
    def release_later(self, want: Want, ttl: int) -> None:
        """Forget it."""


ignores_its_clock = _keeping(_Deaf)
ignores_refusals = _keeping(_Obstinate)
believes_lost_answers = _keeping(_Trusting)
loses_at_the_first_fault = _keeping(_Faint)
tells_twice = _keeping(_Talkative)
renews_without_alarm = _keeping(_Silent)
overwrites_crossed_changes = _keeping(_LastAnswerWins)
storms = _keeping(_Stormy)
forgets_doubtful_releases = _keeping(_Oblivious)


# -- holders and pins


class _Unsuspended(Pinning):
    def pinned(self, key: str, owner: str, token: int) -> None:
        """Note nothing."""

    async def unpinned(self, key: str, owner: str, token: int) -> None:
        """Nothing was put off."""


class _AtOnce(Pinning):
    async def unpinned(self, key: str, owner: str, token: int) -> None:
        self._releases.pop((key, owner), None)
        await super().unpinned(key, owner, token)


class _Leaver(Holding):
    async def close(self, timeout: float | None) -> None:
        await self.keeper.drained(timeout)
        for kept in self.keeper.kept():
            self.keeper.let_go(kept)
            kept.ended = True


class _Generous(Holding):
    async def extend(self, kept: Kept, ttl: Any) -> Any:
        believed = kept.deadline
        try:
            return await super().extend(kept, ttl)
        except BackendUnavailable:
            kept.deadline = believed
            raise


class _Eager(Holding):
    def begin(self, grant: Grant, *, renew: bool, at_least: int) -> Kept:
        kept = super().begin(grant, renew=renew, at_least=at_least)
        kept.deadline = self._clock.now() + kept.want.ttl / 1_000_000 - margin(kept.want.ttl)
        return kept


suspends_nothing = _keeping(Keeper, _Unsuspended)
drops_postponed_releases = _keeping(Keeper, _AtOnce)
leaves_in_silence = _keeping(Keeper, hold=_Leaver)
trusts_the_longer_ttl = _keeping(Keeper, hold=_Generous)
trusts_from_the_answer = _keeping(Keeper, hold=_Eager)


# -- waiters


class _Deserted(Lines):
    def leave(self, line: Line, event: Event) -> None:
        line.waiters.pop(event, None)


class _Pushy(Lines):
    def join(self, key: str, event: Event, now: float) -> Line:
        line = super().join(key, event, now)
        line.waiters.move_to_end(event, last=False)
        return line


deaf_lines: Makes = partial(provider, lines=_Deserted)
jumps_the_line: Makes = partial(provider, lines=_Pushy)


# -- batches


class _Partial(Claims):
    async def undo(self, wants: Sequence[Want]) -> None:
        """Keep what was won."""


def keeps_a_part(port: ProcessPort, family: Family, name: str) -> tuple[Leases, Holding]:
    leases, holding = provider(port, family, name)
    leases.claims = _Partial(port, leases._backend, leases.names, leases.releases)
    return leases, holding


class _Sweeping(LeaseTable):
    async def release(self, wants: Sequence[Want]) -> Answers:
        return await super().release([Want(want.key, want.owner, want.attempt) for want in wants])


forgets_minimum_holds: Makes = partial(provider, backend=_Sweeping)
