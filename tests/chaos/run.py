"""One run from the start of its workers to the verdict."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass

from tests.chaos.checker import History, Violation, check
from tests.chaos.crew import assemble
from tests.chaos.history import Recorder, load, now
from tests.chaos.injector import Injector
from tests.chaos.place import Place
from tests.chaos.plan import Plan
from tests.faults.processes import warm_up

INJECTOR = "injector"
SLACK = 2.0
"""Seconds beyond the longest ttl after which nothing may be held."""


@dataclass(frozen=True)
class Outcome:
    """What came of a run."""

    plan: Plan
    history: History
    violations: list[Violation]

    def __str__(self) -> str:
        counted = Counter(event.kind for event in self.history.events)
        faults = Counter(event.note for event in self.history.of("fault"))
        counted["guarded writes"] = len(self.history.writes)
        named = ("grant", "busy", "unknown", "trust", "loss", "guarded writes", "conflict", "killed")
        of_each = ", ".join(f"{count} {fault}" for fault, count in faults.most_common())
        lines = [
            f"chaos on {self.plan.server}: seed {self.plan.seed}, {self.plan.seconds:g} s",
            "  ".join(f"{name}: {counted[name]}" for name in named),
            f"faults: {sum(faults.values())} ({of_each})",
            *(f"VIOLATION {each.rule}: {each.text}" for each in self.violations),
            f"verdict: {'RED' if self.violations else 'green'}",
        ]
        return "\n".join(lines)


def run(plan: Plan) -> Outcome:
    """Let the crew work and the injector break things; return what the checker says of it."""
    with ExitStack() as stack:
        place = Place(plan, stack)
        recorder = Recorder(plan.directory / f"{INJECTOR}.jsonl", INJECTOR)
        stack.callback(recorder.close)
        warm_up()
        until = now() + plan.seconds
        crew = assemble(plan, place.url, until, stack)
        try:
            Injector(plan, place, crew, recorder).run(until)
            for member in crew:
                member.finish(recorder)
        finally:
            for member in crew:
                member.abandon()
        held = place.held_after(plan.ttl[1] + SLACK)
        history = History(load(plan.directory), place.writes(), held, plan.keys, plan.progress)
        return Outcome(plan, history, check(history))
