"""The explorer of processes finds what it is for: each mutant breaks a property within a small budget."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.exploration.explorer import Counterexample
from tests.exploration.families import family
from tests.exploration.processes import lives, mutants
from tests.exploration.processes.catalogue import extends, scenarios_on
from tests.exploration.processes.exploring import explore_processes
from tests.exploration.processes.programs import Budget, Makes, Scenario
from tests.exploration.table import Rules

SCENARIOS = {
    f"{name}-{what}": found for name in ("postgresql", "mysql") for what, found in scenarios_on(name, 0)
}


def found(scenario: Scenario) -> str:
    """Explore a scenario that must not hold."""
    with pytest.raises(Counterexample) as caught:
        explore_processes(scenario)
    assert caught.value.trace
    return caught.value.violation


@pytest.mark.parametrize(
    ("makes", "name", "violation"),
    [
        (mutants.ignores_its_clock, "postgresql-keeper", "although the lease is over"),
        (mutants.ignores_refusals, "postgresql-keeper", "longer than it is stored"),
        (mutants.believes_lost_answers, "postgresql-keeper-faults", "longer than it is stored"),
        (mutants.loses_at_the_first_fault, "postgresql-keeper-faults", "while it is held"),
        (mutants.tells_twice, "postgresql-keeper", "was told 2 times"),
        (mutants.renews_without_alarm, "postgresql-keeper-hangs", "nobody tells"),
        (mutants.overwrites_crossed_changes, "postgresql-extends", "longer than it is stored"),
        (mutants.forgets_doubtful_releases, "postgresql-keeper-faults", "never given back"),
        (mutants.trusts_the_longer_ttl, "postgresql-extends", "longer than it is stored"),
        (mutants.trusts_from_the_answer, "postgresql-keeper", "while it is held"),
        (mutants.leaves_in_silence, "postgresql-shutdown", "never given back"),
        (mutants.suspends_nothing, "mysql-guards", "while"),
        (mutants.drops_postponed_releases, "mysql-pinned-release", "never given back"),
        (mutants.deaf_lines, "postgresql-waiters-cancelled", "waits for ever"),
        (mutants.jumps_the_line, "postgresql-waiters", "came later"),
        (mutants.keeps_a_part, "postgresql-batches", "left its lease behind"),
        (mutants.forgets_minimum_holds, "postgresql-at-least", "minimum"),
    ],
)
def test_a_wrong_provider(makes: Makes, name: str, violation: str) -> None:
    assert violation in found(replace(SCENARIOS[name], makes=makes))


def test_a_keeper_that_does_not_wait_for_a_crossing_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lives, "LONGEST", 25)
    scenario = replace(SCENARIOS["postgresql-extends"], programs=((extends,),), budget=Budget())
    assert "without end" in found(replace(scenario, makes=mutants.storms))


@pytest.mark.parametrize(
    ("rules", "name", "violation"),
    [
        (mutants.Hasty(), "purge", "removed too early"),
        (mutants.Lazy(), "at-least", "minimum"),
        (mutants.Reviver(), "guards", "revived"),
    ],
)
def test_a_wrong_database(rules: Rules, name: str, violation: str) -> None:
    scenario = SCENARIOS[f"mysql-{name}"]
    assert violation in found(replace(scenario, family=family("mysql", rules)))
