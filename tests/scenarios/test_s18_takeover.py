"""S18. A take-over changes everything at once, and fencing tokens never go back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from sqllocks import MemoryLockProvider
from tests.conformance.driving import Client
from tests.scenarios import jobs
from tests.scenarios.arena import SERVERS, Arena
from tests.scenarios.churning import Report, Sample, check_samples, check_tokens, churn, churn_on, sample
from tests.scenarios.workers import Pending
from tests.servers import Unavailable, launch, require_server

PROCESSES = 4
NAMES = 3
ROUNDS = 50
"""Grants of each process: 200 together."""
ROUNDS_AROUND_A_RESTART = 20
ROUNDS_IN_MEMORY = 20
LIMIT = 50.0
SAMPLE_PAUSE = 0.002


def begin(arena: Arena, keys: Sequence[str], rounds: int) -> list[Pending[Report]]:
    """Let the processes take the keys over from each other."""
    targets = arena.targets(PROCESSES)
    return [
        worker.start(churn_on, target, keys, rounds=rounds, offset=number, limit=LIMIT)
        for number, (worker, target) in enumerate(zip(arena.workers(targets), targets, strict=True))
    ]


def watch(arena: Arena, samples: list[Sample], pending: Sequence[Pending[Report]], *, least: int) -> None:
    """Look at the rows all the time until all processes have done, or ``least`` tokens were seen."""
    limit = time.monotonic() + LIMIT
    tokens: set[int] = set()
    while not all(each.done for each in pending) and len(tokens) < least:
        assert time.monotonic() < limit, "the processes do not come to an end"
        seen = sample(arena.observer)
        samples += seen
        tokens |= {each.token for each in seen}
        time.sleep(SAMPLE_PAUSE)


@pytest.mark.parametrize("server", SERVERS)
def test_s18_a_takeover_changes_everything_at_once(arena: Arena, server: str) -> None:
    keys = [arena.key("name") for _ in range(NAMES)]
    arena.observer.rows("DELETE FROM core_locks")
    pending = begin(arena, keys, ROUNDS)
    samples: list[Sample] = []
    watch(arena, samples, pending, least=10**9)
    reports = [each.result() for each in pending]
    assert [report.doubtful for report in reports if report.doubtful] == []
    grants = [grant for report in reports for grant in report.grants]
    assert len(grants) == PROCESSES * ROUNDS
    assert sum(grant.released for grant in grants) > len(grants) // 4
    check_tokens(grants)
    check_samples(samples, reports)
    assert len({each.token for each in samples}) > len(grants) // 4, "the onlooker was too slow"


def test_s18_tokens_rise_in_memory_too() -> None:
    with ThreadPoolExecutor(PROCESSES) as threads:
        client = Client(MemoryLockProvider(), loop=None, threads=threads)
        keys = [f"name:{number}" for number in range(NAMES)]
        pending = [
            threads.submit(churn, client, keys, rounds=ROUNDS_IN_MEMORY, offset=number, limit=LIMIT)
            for number in range(PROCESSES)
        ]
        grants = [grant for each in pending for grant in each.result(LIMIT).grants]
    assert len(grants) == PROCESSES * ROUNDS_IN_MEMORY
    check_tokens(grants)


@pytest.mark.parametrize("server", ["postgresql", "mysql", "mariadb"])
@pytest.mark.timeout(180)
def test_s18_tokens_rise_across_a_restart_of_the_server(server: str) -> None:
    require_server(server)
    try:
        private = launch(server)
    except Unavailable as reason:
        pytest.skip(f"no private {server}: {reason}")
    with private, ExitStack() as stack:
        arena = Arena(server, private, stack)
        keys = [arena.key("name") for _ in range(NAMES)]
        kept = arena.key("kept")
        lease = arena.client.acquire(kept, ttl=120)
        pending = begin(arena, keys, ROUNDS_AROUND_A_RESTART)
        samples: list[Sample] = []
        watch(arena, samples, pending, least=4 * NAMES)
        before = {each.key: each.token for each in samples}
        private.stop()
        arena.observer.close()  # its connections are dead
        private.start()
        watch(arena, samples, pending, least=10**9)
        reports = [each.result() for each in pending]
        grants = [grant for report in reports for grant in report.grants]
        check_tokens(grants)
        known = [each for each in samples if each.key != kept]
        check_samples(known, reports)
        for key in keys:
            assert max(grant.token for grant in grants if grant.key == key) > before[key]
        # a lease that was held when the server went is still held, under the same token
        refused = jobs.call(arena.target(arena.kinds[-1]), "acquire", kept, ttl=10)
        assert not refused.acquired
        assert (refused.fencing_token, refused.expires_at) == (lease.fencing_token, lease.expires_at)
        assert arena.client.release(kept, owner_token=lease.owner_token) is True
        arena.check_quiet()
