"""S36 on elections. Starvation is fatal, one hiccup is not."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.polling import until
from tests.faults import Direction, Relay
from tests.scenarios import electing, locking
from tests.scenarios.arena import Arena
from tests.scenarios.electing import Log
from tests.scenarios.targets import Target

LEASE = 2.0
OPTIONS: dict[str, Any] = {"lease": LEASE, "heartbeat": 0.5, "retry": 0.5}
BLOCKED = 3.5
LEAVING = 2.0
"""Seconds that a callback takes to end after it was told."""
PATIENCE = 30.0
STRATEGIES = ("session", "lease")
each_server = pytest.mark.parametrize("server", ["postgresql", "mariadb"])


def steps_after(log: Log, key: str, moment: float) -> bool:
    """Tell whether a leader has taken a step since."""
    return log.entries(key, "step")[-1].moment > moment


def second(log: Log, key: str) -> bool:
    """Tell whether a second term has begun."""
    return len(log.entries(key, "start")) == 2


@each_server
def test_s36_a_hiccup_and_a_second_elector_in_trouble_do_not_disturb_a_term(
    arena: Arena, server: str, tmp_path: Path
) -> None:
    kind = arena.kinds[-1]
    log = Log(tmp_path / "terms")
    keys = {strategy: arena.key(strategy) for strategy in STRATEGIES}
    with Relay(kind.url(arena.url)) as relay, Relay(kind.url(arena.url)) as bad:
        leading, rival = arena.processes(2)
        through = Target(relay.address, asyncio=True)
        for strategy, key in keys.items():
            pid = leading.run(
                electing.stand, through, key, str(log.path), strategy=strategy, steps=True, **OPTIONS
            )
            until(partial(log.leader, key), within=PATIENCE)
        for strategy, key in keys.items():
            rival.run(electing.stand, arena.target(), key, str(log.path), strategy=strategy, **OPTIONS)
            troubled = Target(bad.address, asyncio=True)
            leading.run(
                electing.stand, troubled, key, str(log.path), name="two", strategy=strategy, **OPTIONS
            )
        time.sleep(0.3)  # the second electors have met the server
        bad.refuse()  # (4)
        relay.delay(0.4, Direction.TO_CLIENT)  # (1) an answer that comes late
        time.sleep(1.0)
        relay.pass_on()
        time.sleep(0.3)
        for strategy, key in keys.items():
            assert log.leader(key) == pid, f"{strategy}: {log.entries(key)[-1]}"
            assert len(log.entries(key, "start")) == 1
            step = log.entries(key, "step")[-1].moment
            until(partial(steps_after, log, key, step), within=1)
        bad.pass_on()
        for key in keys.values():
            for worker, name in ((rival, ""), (leading, "two"), (leading, "")):
                assert worker.run(electing.resign, key, name=name) == ""
            electing.check_terms(log, key)


@each_server
def test_s36_a_lost_answer_does_not_end_a_term_by_lease(arena: Arena, server: str, tmp_path: Path) -> None:
    kind, key, log = arena.kinds[-1], arena.key(), Log(tmp_path / "terms")
    with Relay(kind.url(arena.url)) as relay:
        (leading,) = arena.processes(1)
        through = Target(relay.address, asyncio=True)
        leading.run(electing.stand, through, key, str(log.path), strategy="lease", **OPTIONS)
        until(partial(log.leader, key), within=PATIENCE)
        relay.lose_next_answer()
        assert relay.lost.wait(PATIENCE)
        before = arena.observer.stored(f"election:{key}")
        assert before is not None

        def renewed() -> bool:
            row = arena.observer.stored(f"election:{key}")
            assert row is not None
            return row.expires_at > before.expires_at

        until(renewed, within=LEASE)
        assert leading.run(electing.resign, key) == ""
        assert len(electing.check_terms(log, key)) == 1


@each_server
def test_s36_a_blocked_loop_and_a_slow_callback_do_not_keep_a_leader(
    arena: Arena, server: str, tmp_path: Path
) -> None:
    log = Log(tmp_path / "terms")
    target = arena.target(arena.kinds[-1])
    blocked = {strategy: arena.key(f"blocked-{strategy}") for strategy in STRATEGIES}
    slow = arena.key("slow")
    first, third, rival = arena.processes(3)
    for strategy, key in blocked.items():
        pid = first.run(electing.stand, target, key, str(log.path), strategy=strategy, steps=True, **OPTIONS)
        until(partial(log.leader, key), within=PATIENCE)
    options: dict[str, Any] = {**OPTIONS, "strategy": "session", "leaving": LEAVING}
    loser = third.run(electing.stand, target, slow, str(log.path), **options)
    until(partial(log.leader, slow), within=PATIENCE)
    for strategy, key in blocked.items():
        rival.run(electing.stand, arena.target(), key, str(log.path), strategy=strategy, **OPTIONS)
    rival.run(electing.stand, arena.target(), slow, str(log.path), **OPTIONS)
    blocking = first.start(electing.block_the_loop, BLOCKED)
    began = time.monotonic()
    # (3) it takes its time to leave, which nobody waits for
    session = locking.carrier(arena.observer, f"election:{slow}")
    assert session is not None
    killed = locking.kill(arena.observer, session)
    until(partial(second, log, slow), within=PATIENCE)
    assert log.entries(slow, "start")[1].moment - killed < OPTIONS["retry"] + 1.0
    assert log.entries(slow, "invalid", pid=loser)[0].moment - killed < 0.5
    assert log.entries(slow, "start")[1].moment < killed + LEAVING
    # (2) nobody waits for the one whose loop is blocked, and it does nothing more when it runs again
    for key in blocked.values():
        until(partial(second, log, key), within=PATIENCE)
        assert log.entries(key, "start")[1].moment - began < LEASE + 1.0
    assert time.monotonic() - began < BLOCKED
    blocking.result()
    for key in blocked.values():
        until(partial(log.entries, key, "stop", pid=pid), within=PATIENCE)
        step = max(entry.moment for entry in log.entries(key, "step", pid=pid))
        assert step < log.entries(key, "start")[1].moment
        assert len(log.entries(key, "start")) == 2
    until(partial(log.entries, slow, "stop", pid=loser), within=PATIENCE)
    for key in (*blocked.values(), slow):
        for worker in (rival, third if key == slow else first):
            assert worker.run(electing.resign, key) == ""
