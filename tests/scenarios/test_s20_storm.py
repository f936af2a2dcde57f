"""S20. Conflicts with other transactions are absorbed: a caller sees "not acquired" at most."""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise

import pytest

from tests.scenarios import storming
from tests.scenarios.arena import SERVERS, Arena
from tests.scenarios.storming import Storm
from tests.scenarios.workers import Pending, Worker

PROCESSES = 8
NAMES = 3
SECONDS = float(os.environ.get("SQLLOCKS_STORM_SECONDS", "4"))
SLACK = 0.5
WAIT = 0.25
# what each call may take at most: to ask again for a locked row, to wait, to insist on its answer
LONGEST = {"acquire": 0.2, "wait": WAIT + 0.2, "extend": 2.0, "release": 2.0}
# one process at a time can write, so that getting past all others may take as long as a release may
WAIT_ON_SQLITE = 2.0
LONGEST_ON_SQLITE = {"acquire": 2.0, "wait": WAIT_ON_SQLITE + 0.4, "extend": 2.0, "release": 2.0}


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.timeout(120 + 2 * SECONDS)
def test_s20_callers_see_no_conflicts(arena: Arena, server: str) -> None:
    keys = [arena.key(f"name-{number}") for number in range(NAMES)]
    for key in keys:
        handle = arena.client.acquire(key, ttl=1)
        assert arena.client.release(key, owner_token=handle.owner_token) is True
    # half of them where a snapshot can be too old
    targets = arena.targets(PROCESSES // 2)
    targets += arena.targets(PROCESSES // 2, setup=arena.default_isolation("REPEATABLE READ"))
    *workers, other = arena.workers([*targets, arena.target()])
    disturbing = disturb(arena, other, keys)
    moment = time.monotonic() + 0.05
    wait = WAIT_ON_SQLITE if server == "sqlite" else WAIT
    begun = [
        worker.start(storming.storm, moment, target, keys, seconds=SECONDS, wait=wait)
        for worker, target in zip(workers, targets, strict=True)
    ]
    storms = [pending.result(SECONDS + 30) for pending in begun]
    assert disturbing.result(SECONDS + 30) > SECONDS
    outcomes = sum((met.outcomes for met in storms), Counter[str]())
    assert [error for met in storms for error in met.errors] == [], outcomes
    assert outcomes["acquire: granted"] > 10 * SECONDS, outcomes
    check_durations(storms, LONGEST_ON_SQLITE if server == "sqlite" else LONGEST)
    check_exclusion(storms)


def disturb(arena: Arena, other: Worker, keys: Sequence[str]) -> Pending[int]:
    """Let another process stand in the way, with plain transactions of its own."""
    address = arena.target().address
    if arena.server == "sqlite":
        arena.observer.rows("CREATE TABLE IF NOT EXISTS notes (content TEXT)")
        return other.start(storming.write_file, address, seconds=SECONDS)
    return other.start(storming.hold_rows, address, keys, seconds=SECONDS)


def check_durations(storms: Sequence[Storm], longest: dict[str, float]) -> None:
    """Every call returned within its own time."""
    for name, seconds in longest.items():
        took = max(met.longest.get(name, 0.0) for met in storms)
        assert took < seconds + SLACK, f"{name} took {took:.2f} s"


def check_exclusion(storms: Sequence[Storm]) -> None:
    """No two processes held a key at the same time, and later grants had higher tokens."""
    by_key: dict[str, list[tuple[float, float, int]]] = defaultdict(list)
    for met in storms:
        for key, token, won, given_back in met.held:
            by_key[key].append((won, given_back, token))
    for held in by_key.values():
        held.sort()
        for (_, ended, lower), (began, _, higher) in pairwise(held):
            assert ended <= began
            assert lower < higher
