"""The explorer finds what it is for in shared statements: each mutant of the queue breaks a property."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import pytest

from sqllocks.core.combining import Call, Queue
from sqllocks.dialects.base import Answer, Fault, Verdict, Want
from tests.exploration.explorer import Counterexample
from tests.exploration.processes.combining import SteppingCombiner, combined, shared_on
from tests.exploration.processes.exploring import explore_processes

SCENARIOS = dict(shared_on("postgresql", 0))


class Sleepy(SteppingCombiner):
    """Nobody sends what came during the statement of a lone caller."""

    def land(self, flight: object) -> None:
        self._queue.finish(flight)
        if isinstance(flight, Call):
            self.pump()


class Blind(Queue):
    """What is in flight holds nothing up."""

    def start(self, flight: object, wants: Iterable[Want]) -> None:
        super().start(flight, ())


class Overtaking(SteppingCombiner):
    """A give-back goes beside the claim that it is for."""

    limit = 2
    queue = Blind


class Trusting(SteppingCombiner):
    """What failed for several together is taken for done."""

    async def _one_by_one(self, batch: Sequence[Call], whole: Fault) -> None:
        for call in batch:
            call.answers = {
                want.key: Answer(Verdict.REFUSED, 1, datetime.fromtimestamp(0, UTC)) for want in call.wants
            }


@pytest.mark.parametrize(
    ("mutant", "name", "violation"),
    [
        (Sleepy, "shared", "waits for ever"),
        (Overtaking, "shared-cancelled", "left its lease behind"),
        (Trusting, "shared", "left its lease behind"),
    ],
)
def test_a_wrong_queue(mutant: type[SteppingCombiner], name: str, violation: str) -> None:
    scenario = replace(SCENARIOS[name], makes=partial(combined, combiner=mutant))
    with pytest.raises(Counterexample) as caught:
        explore_processes(scenario)
    assert violation in caught.value.violation
