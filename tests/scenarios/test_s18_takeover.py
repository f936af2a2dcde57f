"""S18. A take-over changes everything at once, and fencing tokens never go back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta

import pytest

from sqllocks import MemoryLockProvider
from tests.conformance.driving import Client
from tests.scenarios import jobs
from tests.scenarios.arena import SERVERS, Arena
from tests.scenarios.churning import (
    Grant,
    Report,
    Sample,
    check_samples,
    check_tokens,
    churn,
    churn_on,
    sample,
)
from tests.scenarios.workers import Pending
from tests.servers import Unavailable, launch, require_server

PROCESSES = 4
NAMES = 3
ROUNDS = 50
"""Grants of each process: 200 together."""
ROUNDS_AROUND_A_RESTART = 20
ROUNDS_IN_MEMORY = 20
LIMIT = 50.0
OLD = 20
"""Rows that nobody has used for an hour."""
HOUR = timedelta(hours=1)
SAMPLE_PAUSE = 0.002
MICROSECOND = timedelta(microseconds=1)


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


class Old:
    """Rows as an hour ago left them, some of which come to life again while others are purged."""

    def __init__(self, arena: Arena, names: Sequence[str]) -> None:
        self._arena = arena
        self._names = names
        self.live = arena.key("live")
        self.lease = arena.client.acquire(self.live, ttl=600)
        keys = [*names, *(arena.key("old") for _ in range(OLD))]
        self.owners = set()
        for handle in arena.client.call("acquire_many", keys, ttl=30):
            self.owners.add(handle.owner_token)
        arena.client.call("release_many", keys, owner_token=next(iter(self.owners)))
        self.tokens = {key: self._age(key) for key in keys}
        self.purged = 0
        # only the token is old: the row is held
        arena.observer.set(self.live, fencing_token=self.lease.fencing_token - HOUR // MICROSECOND)

    def _age(self, key: str) -> int:
        row = self._arena.observer.stored(key)
        assert row is not None
        token = row.fencing_token - HOUR // MICROSECOND
        self._arena.observer.set(key, fencing_token=token, expires_at=row.expires_at - HOUR)
        return token

    def purge(self) -> None:
        """Run the library's purge."""
        self.purged += self._arena.client.call("purge", idle=60)

    def check(self, grants: Sequence[Grant]) -> None:
        """What was old is gone, but for what was taken or held; and tokens went on from it."""
        left = {key for (key,) in self._arena.observer.rows("SELECT lock_key FROM core_locks")}
        assert left == {self.live, *(grant.key for grant in grants)}
        assert OLD <= self.purged <= OLD + len(self._names)
        for name in self._names:
            assert min(grant.token for grant in grants if grant.key == name) > self.tokens[name]
        assert self._arena.client.release(self.live, owner_token=self.lease.owner_token) is True


@pytest.mark.parametrize("server", SERVERS)
def test_s18_a_takeover_changes_everything_at_once(arena: Arena, server: str) -> None:
    keys = [arena.key("name") for _ in range(NAMES)]
    late = [arena.key("late") for _ in range(NAMES)]
    arena.observer.rows("DELETE FROM core_locks")
    old = Old(arena, late)
    samples: list[Sample] = []
    pending = begin(arena, keys, ROUNDS // 2)
    watch(arena, samples, pending, least=10**9)
    reports = [each.result() for each in pending]
    # in the middle: the purge meets the first grants of names that were not used for an hour
    pending = begin(arena, late, ROUNDS // 2)
    old.purge()
    watch(arena, samples, pending, least=4 * NAMES)
    old.purge()
    watch(arena, samples, pending, least=10**9)
    reports += [each.result() for each in pending]
    assert [report.doubtful for report in reports if report.doubtful] == []
    grants = [grant for report in reports for grant in report.grants]
    assert len(grants) == PROCESSES * ROUNDS
    assert sum(grant.released for grant in grants) > len(grants) // 4
    old.check(grants)
    check_tokens(grants)
    check_samples(
        [each for each in samples if each.owner not in {*old.owners, old.lease.owner_token}], reports
    )
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
        assert arena.client.call("purge", idle=60) == 0  # all of it is young
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
        assert arena.client.call("purge", idle=60) == 0
        # a lease that was held when the server went is still held, under the same token
        refused = jobs.call(arena.target(arena.kinds[-1]), "acquire", kept, ttl=10)
        assert not refused.acquired
        assert (refused.fencing_token, refused.expires_at) == (lease.fencing_token, lease.expires_at)
        assert arena.client.release(kept, owner_token=lease.owner_token) is True
        arena.check_quiet()
