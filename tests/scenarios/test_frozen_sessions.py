"""Holders and leaders that freeze, or whose network falls silent, lose what they hold within the lease."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.polling import until
from tests.faults import Relay
from tests.scenarios import electing, locking
from tests.scenarios.arena import Arena
from tests.scenarios.electing import Log
from tests.scenarios.targets import Target

LEASE = 2.0
OPTIONS: dict[str, Any] = {"lease": LEASE, "heartbeat": 0.5}
SLACK = 1.0
PATIENCE = 30.0


@pytest.mark.parametrize("server", ["postgresql", "mysql", "mariadb"])
def test_frozen_and_cut_off_holders_lose_their_locks_within_the_lease(
    arena: Arena, server: str, tmp_path: Path
) -> None:
    kinds = (arena.kinds[0], arena.kinds[-1])
    blocking, asyncio = (arena.target(kind) for kind in kinds)
    keys = [arena.key(label) for label in ("frozen", "frozen-asyncio", "silent", "silent-asyncio")]
    terms = {strategy: arena.key(f"term-{strategy}") for strategy in ("session", "lease")}
    log = Log(tmp_path / "terms")
    with Relay(kinds[0].url(arena.url)) as one, Relay(kinds[1].url(arena.url)) as two:
        holders = [blocking, asyncio, Target(one.address), Target(two.address, asyncio=True)]
        first, second, third, contender = arena.workers([blocking, asyncio, blocking, blocking])
        workers = [first, second, third, third]
        for worker, target, key in zip(workers, holders, keys, strict=True):
            worker.run(locking.open_locker, target, **OPTIONS)
            worker.run(locking.take, target, key)
        for strategy, term in terms.items():
            first.run(electing.stand, blocking, term, str(log.path), strategy=strategy, steps=True, **OPTIONS)
        leader = first.run(os.getpid)
        until(lambda: all(log.leader(term) == leader for term in terms.values()), within=PATIENCE)
        contender.run(locking.open_locker, blocking, **OPTIONS)
        for strategy, term in terms.items():
            contender.run(
                electing.stand, blocking, term, str(log.path), strategy=strategy, retry=0.5, **OPTIONS
            )
        waiting = contender.start(locking.take_all, blocking, keys, wait=PATIENCE)
        carrying = {key: locking.carrier(arena.observer, key) for key in keys}
        frozen = [leader, second.run(os.getpid)]
        asked = time.monotonic()
        one.fall_silent()
        two.fall_silent()
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        stopped = time.monotonic()
        try:
            taken = dict(zip(keys, waiting.result(), strict=True))
            until(lambda: all(log.leader(term) not in (None, leader) for term in terms.values()))
            # the first that they do when they run again
            thawed = [first.start(locking.facts, keys[0]), second.start(locking.facts, keys[1])]
        finally:
            for pid in frozen:
                os.kill(pid, signal.SIGCONT)
        for key in keys:
            assert asked < taken[key].moment < stopped + LEASE + SLACK
            assert locking.carrier(arena.observer, key) not in {None, carrying[key]}
        for pending in thawed:
            facts = pending.result()
            assert facts.lost
            assert facts.check == "LeaseLost"
        for key in keys[2:]:
            facts = third.run(locking.facts, key)
            assert facts.lost
            assert len(facts.losses) == 1
            assert facts.losses[0] < stopped + LEASE
            assert facts.losses[0] < taken[key].moment
        for worker, key in zip(workers, keys, strict=True):
            assert not worker.run(locking.proven, key)
            assert not worker.run(locking.give_back, key)
            assert len(worker.run(locking.facts, key).losses) == 1
        assert all(contender.run(locking.proven, key) for key in keys)
        assert all(contender.run(locking.give_back, key) for key in keys)
        one.pass_on()
        two.pass_on()
        for term in terms.values():
            until(partial(log.entries, term, "stop", pid=leader), within=PATIENCE)
            follower = next(entry for entry in log.entries(term, "start") if entry.pid != leader)
            assert asked < follower.moment < stopped + LEASE + SLACK
            steps = [entry.moment for entry in log.entries(term, "step", pid=leader)]
            assert max(steps) < follower.moment, "the frozen one took a step when it ran again"
            for worker in (first, contender):
                assert worker.run(electing.resign, term) == ""
