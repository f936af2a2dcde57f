"""S40. Shutdown, identity, restore, an operator's hand: what becomes of leases that are held."""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack
from datetime import timedelta

import pytest

from sqllocks import LeaseLost, LockHandle, SqlLockProvider, StaleFencingToken
from tests.conformance.observing import Observer
from tests.conformance.polling import Stopwatch, until
from tests.scenarios import dumping, jobs, shutting_down
from tests.scenarios.arena import SERVERS, Arena
from tests.scenarios.commands import alive
from tests.servers import fresh_database, require_server

PATIENCE = 30.0
LONG = 60.0
SLACK = 0.5
HOUR = timedelta(hours=1)
each_server = pytest.mark.parametrize("server", SERVERS)


@each_server
def test_s40_a_shutdown_waits_for_the_bodies_and_then_frees_at_once(arena: Arena, server: str) -> None:
    ends, stays = arena.key("ends"), arena.key("stays")
    (worker,) = arena.workers([arena.target()])
    pid = worker.run(os.getpid)
    serving = worker.start(
        shutting_down.serve, arena.target(), [ends, stays], ttl=LONG, work_left=[1.0, 600.0], limit=2.5
    )
    until(lambda: sorted(arena.held()) == sorted([ends, stays]), within=PATIENCE)
    os.kill(pid, signal.SIGTERM)
    freed: dict[str, float] = {}
    seen_held = dict.fromkeys((ends, stays), 0.0)
    watch = Stopwatch()
    while len(freed) < 2:
        assert watch.seconds < PATIENCE
        asked, held = time.monotonic(), arena.held()
        for key in (ends, stays):
            if key in held:
                seen_held[key] = asked
            else:
                freed.setdefault(key, time.monotonic())
        time.sleep(0.01)
    report = serving.result()
    # held as long as the body worked, although it had been told to end; then free at once, not at its ttl
    assert report.ended[ends] - report.told >= 1.0
    assert seen_held[ends] >= report.told + 0.7
    assert freed[ends] >= report.ended[ends]
    assert freed[ends] - report.ended[ends] < SLACK
    # a body that does not end is not waited for longer than was said
    assert 2.5 <= report.closed - report.told < 2.5 + 2 * SLACK
    assert freed[stays] >= report.told + 2.5
    assert freed[stays] - report.closed < SLACK
    assert report.lost == [stays]


@each_server
def test_s40_a_new_process_with_the_same_label_is_a_stranger(arena: Arena, server: str) -> None:
    key, target = arena.key("identity"), arena.target(holder="host-1")
    dead, reborn = arena.workers([target, target])
    pid = dead.run(os.getpid)
    dead.start(shutting_down.hold_for_ever, target, key, ttl=2.5)
    until(lambda: arena.client.locked(key), within=PATIENCE)
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid), within=PATIENCE)
    refused = reborn.run(jobs.call, target, "acquire", key, ttl=LONG)
    assert not refused.acquired
    info = arena.client.inspect(key)
    assert info is not None
    assert info.holder == "host-1"
    granted: LockHandle = reborn.run(jobs.call, target, "require_acquire", key, ttl=LONG, wait=PATIENCE)
    assert granted.fencing_token > refused.fencing_token
    row = arena.observer.stored(key)
    assert row is not None
    # nothing but the expiry of the dead one's lease let it in
    assert row.acquired_at >= refused.expires_at
    assert reborn.run(jobs.call, target, "release", key, owner_token=granted.owner_token) is True


@each_server
def test_s40_a_restored_dump_grants_at_once_and_its_tokens_go_on(arena: Arena, server: str) -> None:
    held, free = arena.key("held"), arena.key("free")
    lease = arena.client.acquire(held, ttl=1.5)
    gone = arena.client.acquire(free, ttl=LONG)
    assert arena.client.release(free, owner_token=gone.owner_token)
    with ExitStack() as stack:
        url = stack.enter_context(fresh_database(server))
        elsewhere = Observer(arena.kinds[0], url)
        stack.callback(elsewhere.close)
        dumping.copy(arena.observer, elsewhere)
        restored = elsewhere.stored(held)
        assert restored is not None
        assert restored == arena.observer.stored(held)
        until(lambda: elsewhere.now() >= lease.expires_at, within=PATIENCE)
        locks = stack.enter_context(SqlLockProvider(arena.kinds[0].url(url)))
        for key, before in ((held, lease), (free, gone)):
            watch = Stopwatch()
            handle = locks.acquire(key, ttl=LONG)
            assert handle.acquired
            assert watch.seconds < 2
            assert handle.fencing_token > before.fencing_token
        # the holder of the original has nothing there
        assert locks.extend(held, owner_token=lease.owner_token, ttl=LONG) is None
        assert locks.release(held, owner_token=lease.owner_token) is False
    until(lambda: not arena.client.locked(held), within=PATIENCE)


@each_server
def test_s40_a_forced_release_is_learnt_and_final(arena: Arena, server: str) -> None:
    key = arena.key("forced")
    engine = arena.engine(arena.target())
    told: list[str] = []
    with SqlLockProvider(arena.target().address) as locks:
        with pytest.raises(LeaseLost), locks.hold(key, ttl=3) as lease:
            lease.on_lost(lambda: told.append(key))
            handle = LockHandle(True, key, lease.owner_token, lease.expires_at, lease.fencing_token)
            assert arena.client.break_lock(key) is True
            # at once for who asks the database, at the next renewal for who asks nobody
            with pytest.raises(StaleFencingToken), engine.begin() as connection:  # type: ignore[union-attr]
                lease.guard(connection)
            successor = arena.client.acquire(key, ttl=LONG)
            assert successor.acquired
            assert successor.fencing_token > handle.fencing_token
            until(lambda: lease.lost, within=PATIENCE)
            lease.check()
        until(lambda: told == [key], within=PATIENCE)  # the flag turns before the callbacks are called
        before = arena.observer.raw(key)
        assert locks.extend(key, owner_token=handle.owner_token, ttl=LONG) is None
        assert locks.release(key, owner_token=handle.owner_token) is False
        assert arena.observer.raw(key) == before
    assert arena.client.release(key, owner_token=successor.owner_token) is True


@each_server
def test_s40_a_purge_removes_no_live_row_and_lowers_no_token(arena: Arena, server: str) -> None:
    require_server(server)
    live, idle, ahead = (arena.key(label) for label in ("live", "idle", "ahead"))
    handles = {key: arena.client.acquire(key, ttl=LONG) for key in (live, idle, ahead)}
    for key in (idle, ahead):
        assert arena.client.release(key, owner_token=handles[key].owner_token)
    tokens = {key: handle.fencing_token for key, handle in handles.items()}
    back = HOUR // timedelta(microseconds=1)
    for key in (live, idle):
        tokens[key] -= back
        arena.observer.set(key, fencing_token=tokens[key])
    tokens[ahead] += back  # a clock that was an hour ahead when it was granted
    arena.observer.set(ahead, fencing_token=tokens[ahead])
    for key in (idle, ahead):
        row = arena.observer.stored(key)
        assert row is not None
        arena.observer.set(key, expires_at=row.expires_at - HOUR)
    removed = arena.client.call("purge", idle=60)
    assert removed >= 1
    assert arena.observer.stored(idle) is None
    assert arena.client.locked(live) is True
    for key in (idle, ahead):
        again = arena.client.acquire(key, ttl=LONG)
        assert again.acquired
        assert again.fencing_token > tokens[key]
        assert arena.client.release(key, owner_token=again.owner_token) is True
    assert arena.client.release(live, owner_token=handles[live].owner_token) is True
