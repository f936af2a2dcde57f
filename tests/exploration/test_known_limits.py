"""What leases do not promise, shown by a schedule each: a change here is a change of the documentation."""

from __future__ import annotations

import pytest

from tests.exploration.explorer import Counterexample, explore
from tests.exploration.families import family
from tests.exploration.programs import TTL, Budget, Program, Scenario, acquire, extend, release


def limit(*programs: Program, budget: Budget) -> Counterexample:
    """Return how a promise would be broken."""
    with pytest.raises(Counterexample) as caught:
        explore(Scenario(family("postgresql"), programs, budget))
    return caught.value


def test_a_release_that_lands_late_ends_the_next_lease_of_the_same_owner_token() -> None:
    """A release names the owner token only, so an owner token must not be used for a second acquire."""
    mine = "brought"
    again = (acquire(owner=mine), release(), acquire(owner=mine))
    counterexample = limit(again, (acquire(),), budget=Budget(faults=2))
    assert "both trust" in counterexample.violation
    # with fresh owner tokens nothing of the kind happens
    explore(
        Scenario(family("postgresql"), ((acquire(), release(), acquire()), (acquire(),)), Budget(faults=2))
    )


def test_an_extension_to_a_shorter_ttl_that_lands_late_shortens_the_lease() -> None:
    """A renewal sets the expiry, so a shorter one that was given up must not be followed by a longer one."""
    shorter = (acquire(), extend(ttl=TTL / 4), extend(ttl=TTL))
    counterexample = limit(shorter, (acquire(),), budget=Budget(faults=2, expiries=1))
    assert "both trust" in counterexample.violation


def test_a_second_release_whose_first_answer_is_lost_may_say_true_again() -> None:
    """A free row with one's own owner token does not tell which release freed it."""
    twice = (acquire(), release(), release())
    counterexample = limit(twice, (acquire(),), budget=Budget(faults=1))
    assert "did not free" in counterexample.violation
