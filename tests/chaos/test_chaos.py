"""A short run of chaos on each database, and runs of broken workers, which must not pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.plan import Plan
from tests.chaos.run import run

SECONDS = 6.0
SABOTAGED_SECONDS = 4.0
SEED = 7
KEYS = ("a", "b", "c")
SABOTAGES = {
    "ignore-expiry": ("delay", "no_trust_after_a_later_grant"),
    "no-guard": ("delay", "no_lost_update"),
    "busy-for-unknown": ("refuse", "silence_is_unknown"),
}
"""Which fault to add to the worker's own, and the rule that finds it."""


@pytest.mark.parametrize("server", ["postgresql", "mysql", "mariadb", "sqlite"])
def test_no_rule_is_broken_whatever_is_killed_stopped_or_cut_off(server: str, tmp_path: Path) -> None:
    plan = Plan(server, tmp_path, seconds=SECONDS, seed=SEED, workers=4, keys=KEYS, pace=0.2, progress=1)
    outcome = run(plan)
    assert not outcome.violations, str(outcome)
    assert list(outcome.history.of("fault")), "nothing was broken"
    assert outcome.history.writes, "nothing was written"


@pytest.mark.parametrize("sabotage", SABOTAGES)
def test_a_worker_that_breaks_a_rule_is_found(sabotage: str, tmp_path: Path) -> None:
    fault, rule = SABOTAGES[sabotage]
    plan = Plan(
        "postgresql",
        tmp_path,
        seconds=SABOTAGED_SECONDS,
        seed=SEED,
        workers=4,
        keys=("a", "b"),
        ttl=(0.4, 0.6),
        pace=0.3,
        faults=(fault,),
        sabotage=sabotage,
        progress=0,
    )
    outcome = run(plan)
    assert rule in {violation.rule for violation in outcome.violations}, str(outcome)
