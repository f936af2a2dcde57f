"""S40 on session locks and elections: shutdown, identity, an operator's hand, purge."""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.polling import until
from tests.scenarios import electing, locking, shutting_down
from tests.scenarios.arena import ALL, Arena
from tests.scenarios.commands import alive
from tests.scenarios.electing import Log
from tests.scenarios.locking import Locker

LEASE = 4.0
OPTIONS: dict[str, Any] = {"lease": LEASE, "heartbeat": 1}
RETRY = 0.3
PATIENCE = 30.0
WORK_LEFT = 1.0
HOUR = timedelta(hours=1)
two_servers = pytest.mark.parametrize("server", ["postgresql", "mariadb", *(["mysql"] if ALL else [])])
each_server = pytest.mark.parametrize("server", ["postgresql", "mysql", "mariadb"])


@two_servers
def test_s40_a_shutdown_frees_locks_and_terms_when_the_bodies_have_ended(
    arena: Arena, server: str, tmp_path: Path
) -> None:
    log, term, key = Log(tmp_path / "terms"), arena.key("term"), arena.key("held")
    serving, other = arena.processes(2)
    target = arena.target(holder="host-1")
    pid = serving.run(os.getpid)
    done = serving.start(
        shutting_down.serve_session, target, key, term, str(log.path), work_left=WORK_LEFT, options=OPTIONS
    )
    until(lambda: log.leader(term) == pid and locking.carrier(arena.observer, key), within=PATIENCE)
    other.run(locking.open_locker, arena.target(), **OPTIONS)
    other.run(electing.stand, arena.target(), term, str(log.path), strategy="session", retry=RETRY, **OPTIONS)
    waiting = other.start(locking.take_all, arena.target(), [key], wait=PATIENCE)
    os.kill(pid, signal.SIGTERM)
    (taken,) = waiting.result()
    report = done.result()
    until(lambda: log.leader(term) not in (None, pid), within=PATIENCE)
    assert report.lost == []
    assert report.ended[key] - report.told >= WORK_LEFT
    # never before its end, and then at once, not when the lease is over
    assert report.ended[key] <= taken.moment < report.ended[key] + 1.0
    (stopped,) = log.entries(term, "stop", pid=pid)
    followed = log.entries(term, "start")[-1].moment
    assert stopped.moment - report.told >= WORK_LEFT
    assert stopped.moment <= followed < stopped.moment + RETRY + 1.0
    assert other.run(locking.give_back, key)
    assert other.run(electing.resign, term) == ""
    electing.check_terms(log, term)


@two_servers
def test_s40_a_killed_holder_is_followed_at_once_by_one_of_its_label(
    arena: Arena, server: str, tmp_path: Path
) -> None:
    log, term, key = Log(tmp_path / "terms"), arena.key("term"), arena.key("held")
    target = arena.target(holder="host-1")
    dead, reborn = arena.processes(2)
    options: dict[str, Any] = {**OPTIONS, "retry": RETRY, "strategy": "session"}
    pid = dead.run(locking.open_locker, target, **OPTIONS)
    token = dead.run(locking.take, target, key).token
    dead.run(electing.stand, target, term, str(log.path), **options)
    reborn.run(locking.open_locker, target, **OPTIONS)
    until(partial(log.leader, term), within=PATIENCE)
    # the same label is nobody's lock
    assert not reborn.run(locking.try_lock, target, key)
    os.kill(pid, signal.SIGKILL)
    killed = time.monotonic()
    until(lambda: not alive(pid), within=PATIENCE)
    reborn.run(electing.stand, target, term, str(log.path), **options)
    taken = reborn.run(locking.take, target, key, wait=PATIENCE)
    assert taken.token > token
    assert taken.moment - killed < 1.0
    until(lambda: log.leader(term) not in (None, pid), within=PATIENCE)
    assert log.entries(term, "start")[-1].moment - killed < 1.5
    assert reborn.run(locking.give_back, key)
    assert reborn.run(electing.resign, term) == ""
    electing.check_terms(log, term, dead={pid})


@each_server
def test_s40_a_broken_session_lock_or_term_is_lost_and_its_holder_told(
    arena: Arena, server: str, tmp_path: Path
) -> None:
    log, term, key = Log(tmp_path / "terms"), arena.key("term"), arena.key("held")
    quick: dict[str, Any] = {"lease": 3, "heartbeat": 0.4}
    leading, rival = arena.processes(2)
    for worker in (leading, rival):
        worker.run(
            electing.stand, arena.target(), term, str(log.path), strategy="session", retry=RETRY, **quick
        )
        until(partial(log.leader, term), within=PATIENCE)
    leader = log.leader(term)
    with Locker(arena.target(), **quick) as one, Locker(arena.target(), **quick) as two:
        held = one.lock(key)
        broken = time.monotonic()
        assert arena.client.call("break_lock", key) is True
        assert arena.client.call("break_lock", f"election:{term}") is True
        until(lambda: held.losses, within=PATIENCE)
        assert held.losses[0] - broken < 0.4 + 1.0
        assert held.lock.lost
        follower = two.lock(key, wait=PATIENCE)
        assert follower.token > held.token
        assert not held.proven()
        assert not held.unlock()
        assert follower.proven()
        until(lambda: log.entries(term, "stop", pid=leader), within=PATIENCE)
        assert log.entries(term, "stop", pid=leader)[0].moment - broken < 0.4 + 1.0
        until(lambda: len(log.entries(term, "start")) == 2, within=PATIENCE)
        assert follower.unlock()
    for worker in (leading, rival):
        assert worker.run(electing.resign, term) == ""
    electing.check_terms(log, term)


@each_server
def test_s40_a_purge_leaves_a_session_lock_alone(arena: Arena, server: str) -> None:
    key, idle = arena.key("held"), arena.key("idle")
    with Locker(arena.target(), **OPTIONS) as locker:
        held = locker.lock(key)
        token = locker.lock(idle)
        assert token.unlock()
        back = HOUR // timedelta(microseconds=1)
        for name in (key, idle):
            row = arena.observer.stored(name)
            assert row is not None
            arena.observer.set(name, fencing_token=row.fencing_token - back)
        row = arena.observer.stored(idle)
        assert row is not None
        arena.observer.set(idle, expires_at=row.expires_at - HOUR)
        assert arena.client.call("purge", idle=60) >= 1
        assert arena.observer.stored(idle) is None
        assert arena.observer.stored(key) is not None
        again = locker.lock(idle)
        assert again.token > token.token
        assert again.unlock()
        assert held.proven()
        assert held.unlock()
