"""The explorer finds what it is for: each mutant breaks a property within a small budget."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sqllocks.dialects.base import FaultKind
from tests.exploration import mutants
from tests.exploration.catalogue import MIDDLE, SHARED, SHORT, WAITING
from tests.exploration.explorer import Counterexample, explore
from tests.exploration.families import family
from tests.exploration.programs import Budget, Makes, Program, Scenario, acquire, extend
from tests.exploration.table import Rules

PLAIN = Scenario(family("postgresql"), SHORT, Budget())
HELD: tuple[Program, ...] = ((acquire(), extend()), (acquire(),))


def found(**changes: Any) -> Counterexample:
    """Explore a scenario that must not hold."""
    with pytest.raises(Counterexample) as caught:
        explore(replace(PLAIN, **changes))
    assert caught.value.trace
    return caught.value


@pytest.mark.parametrize(
    ("rules", "budget", "violation"),
    [
        pytest.param(mutants.Necromancer(), Budget(expiries=1), "its lease was over", id="revives"),
        pytest.param(mutants.Greedy(), Budget(pins=1, expiries=1), "a transaction pins", id="ignores-pins"),
        pytest.param(mutants.Usurper(), Budget(), "taken over before it ended", id="takes-what-is-held"),
        pytest.param(mutants.Stuck(), Budget(expiries=1), "did not rise", id="repeats-tokens"),
        pytest.param(mutants.Careless(), Budget(), "extend revived", id="changes-what-others-hold"),
    ],
)
def test_a_wrong_database(rules: Rules, budget: Budget, violation: str) -> None:
    counterexample = found(family=family("postgresql", rules), programs=MIDDLE, budget=budget)
    assert violation in counterexample.violation


@pytest.mark.parametrize(
    ("makes", "programs", "budget", "violation"),
    [
        pytest.param(mutants.sees_its_owner_as_itself, SHARED, Budget(), "not in the table", id="own-owner"),
        pytest.param(
            mutants.forgets_to_give_back, SHORT, Budget(interrupts=1), "left its lease", id="no-give-back"
        ),
        pytest.param(
            mutants.sends_each_claim_anew, SHORT, Budget(faults=1), "busy", id="attempt-per-sending"
        ),
        pytest.param(
            mutants.releases_whatever_its_owner_has,
            (*SHARED, (acquire(),)),
            Budget(interrupts=1),
            "both trust",
            id="gives-back-without-attempt",
        ),
        pytest.param(
            mutants.trusts_lost_answers,
            SHORT,
            Budget(faults=1),
            "did not free",
            id="release-in-doubt-is-true",
        ),
        pytest.param(
            mutants.gives_up_renewals,
            HELD,
            Budget(faults=1),
            "held all the time",
            id="renewal-in-doubt-is-lost",
        ),
        pytest.param(mutants.answers_for_itself, SHORT, Budget(), "not those of the row", id="wrong-token"),
        pytest.param(mutants.holds_on_to_the_dead, SHORT, Budget(), "not let go", id="ignores-its-end"),
    ],
)
def test_a_wrong_backend(makes: Makes, programs: tuple[Program, ...], budget: Budget, violation: str) -> None:
    assert violation in found(makes=makes, programs=programs, budget=budget).violation


def test_a_waiter_that_asks_for_the_same_grant_again() -> None:
    counterexample = found(
        makes=mutants.confuses_attempts,
        programs=WAITING,
        budget=Budget(faults=1, stalls=1),
        nap=2.0,
        kinds=(FaultKind.OTHER,),
    )
    assert "both trust" in counterexample.violation


def test_a_core_that_takes_silence_for_busy() -> None:
    assert found(core=mutants.Pessimist, budget=Budget(faults=2)).violation


def test_a_core_that_takes_silence_for_lost() -> None:
    counterexample = found(core=mutants.Impatient, programs=HELD, budget=Budget(faults=2))
    assert "held all the time" in counterexample.violation


def test_a_holder_that_forgets_the_margin() -> None:
    counterexample = found(budget=Budget(expiries=1), drift=50, trusted=lambda ttl: ttl)
    assert "both trust" in counterexample.violation


def test_the_trace_tells_how_it_came_to_that() -> None:
    counterexample = found(makes=mutants.forgets_to_give_back, budget=Budget(interrupts=1))
    assert [str(move) for move in counterexample.trace] == [
        "A: acquire k: begins",
        "A: claim_free k as A0a/A0b: answered",
        "A: claim k as A0a/A0b: carried out, then interrupted",
    ]
    assert str(counterexample).splitlines()[0] == "an acquire that did not succeed left its lease behind"
