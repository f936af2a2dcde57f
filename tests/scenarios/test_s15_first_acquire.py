"""S15. Many processes meet at the first acquire of a name that has never existed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sqllocks import LockHandle
from tests.scenarios import jobs
from tests.scenarios.arena import Arena
from tests.scenarios.targets import Target
from tests.scenarios.workers import Worker, at_once

PROCESSES = 16
NAMES = 50
NEIGHBOURS = 10
TTL = 30.0

LEVELS = ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")
PLACES = [
    *((server, level) for server in ("postgresql", "mysql", "mariadb") for level in LEVELS),
    ("sqlite", "DELETE"),
    ("sqlite", "WAL"),
]
places = pytest.mark.parametrize(
    ("server", "mode"), PLACES, ids=[f"{server}-{mode.lower().replace(' ', '-')}" for server, mode in PLACES]
)


def targets(arena: Arena, mode: str) -> list[Target]:
    """Return a target for each process: engine and session have the isolation level, or the file its mode."""
    if arena.server == "sqlite":
        arena.use_journal(mode)
        return arena.targets(PROCESSES)
    return arena.targets(PROCESSES, isolation=mode, setup=arena.default_isolation(mode))


def race(
    arena: Arena, workers: Sequence[Worker], where: Sequence[Target], keys: Sequence[str]
) -> list[LockHandle]:
    """Let each process acquire its key at the same moment, give back what was granted."""
    outcomes = at_once(workers, jobs.acquire_at, where, keys, ttl=TTL)
    assert all(isinstance(outcome, LockHandle) for outcome in outcomes), outcomes
    handles = [outcome for outcome in outcomes if isinstance(outcome, LockHandle)]
    for handle in handles:
        if handle.acquired:
            assert arena.client.release(handle.lock_key, owner_token=handle.owner_token) is True
    return handles


@places
def test_s15_exactly_one_process_wins_a_new_name(arena: Arena, mode: str) -> None:
    where = targets(arena, mode)
    workers = arena.workers(where)
    for _ in range(NAMES):
        key = arena.key("new")
        handles = race(arena, workers, where, [key] * PROCESSES)
        winners = [handle for handle in handles if handle.acquired]
        assert len(winners) == 1
        # a loser is told whose lock it met
        assert {(handle.fencing_token, handle.expires_at) for handle in handles} == {
            (winners[0].fencing_token, winners[0].expires_at)
        }


@places
def test_s15_every_process_wins_its_own_new_name(arena: Arena, mode: str) -> None:
    where = targets(arena, mode)
    workers = arena.workers(where)
    for _ in range(NEIGHBOURS):
        prefix = arena.key("neighbour")
        handles = race(arena, workers, where, [f"{prefix}:{number:02}" for number in range(PROCESSES)])
        assert all(handle.acquired for handle in handles)
