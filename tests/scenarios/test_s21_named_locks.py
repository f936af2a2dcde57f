"""S21. The answers of named locks have three values, and waiting for them meets every kind of trouble."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError

from sqllocks import LockNotAcquired, LockTimeout
from tests.conformance.observing import Observer
from tests.scenarios import locking
from tests.scenarios.arena import Arena, sessions
from tests.scenarios.locking import Held, Locker

OPTIONS: dict[str, Any] = {"lease": 4, "heartbeat": 1}
HELD_FOR = 1.0
PATIENCE = 20.0
LIMIT = {"mysql": "SET SESSION max_execution_time = 300", "mariadb": "SET SESSION max_statement_time = 0.3"}
each_server = pytest.mark.parametrize("server", ["mysql", "mariadb"])


@each_server
def test_s21_trouble_of_a_waiter_grants_nothing_and_ends_no_wait_early(arena: Arena, server: str) -> None:
    kinds = arena.kinds
    plain = [arena.target(kind) for kind in kinds]
    limited = [arena.target(kind, setup=(LIMIT[server],)) for kind in kinds]
    key = arena.key()
    waiters = [*plain, *plain, *limited, *plain]
    lockers = [Locker(target, **OPTIONS) for target in waiters]
    with Locker(plain[0], **OPTIONS) as holder, ThreadPoolExecutor(len(lockers)) as threads:
        held = holder.lock(key)
        known = sessions(arena.observer)
        numbers = []
        for locker in lockers:
            warm = locker.lock(arena.key("warm"))
            numbers.append(locking.carrier(arena.observer, warm.lock.key))
            assert warm.unlock()
        assert known.isdisjoint(set(numbers))
        # the last two wait for ever, the others for so long
        waits = [PATIENCE] * (len(lockers) - 2) + [None, None]
        waiting = [
            threads.submit(wait_and_give_back, locker, key, wait)
            for locker, wait in zip(lockers, waits, strict=True)
        ]
        began = time.monotonic()
        statements, whole = numbers[:2], numbers[2:4]
        for session in whole:
            assert session is not None
            locking.kill(arena.observer, session)
        while time.monotonic() - began < HELD_FOR:
            for session in statements:
                kill_statement(arena.observer, session)
            assert not any(each.done() for each in waiting), "granted, or given up, while it was held"
            time.sleep(0.02)
        assert held.proven()
        released = time.monotonic()
        assert held.unlock()
        granted = [each.result(PATIENCE) for each in waiting]
        assert min(granted) >= released
    for locker in lockers:
        locker.close()


def wait_and_give_back(locker: Locker, key: str, wait: float | None) -> float:
    """Return when the lock was granted."""
    held = locker.lock(key, wait=wait)
    moment = time.monotonic()
    assert held.unlock()
    return moment


def kill_statement(observer: Observer, session: int | None) -> None:
    """End what a session is at, and not the session."""
    assert session is not None
    # it may have opened another one after its statement was killed
    with suppress(DBAPIError):
        observer.rows(f"KILL QUERY {session}")


@each_server
def test_s21_a_wait_for_a_named_lock_lasts_as_long_as_it_was_told(arena: Arena, server: str) -> None:
    key = arena.key()
    lockers = [Locker(arena.target(kind), **OPTIONS) for kind in (*arena.kinds, arena.kinds[0])]
    with Locker(arena.target(), **OPTIONS) as holder, ThreadPoolExecutor(len(lockers)) as threads:
        held = holder.lock(key)
        for locker in lockers:
            locker.lock(arena.key("warm")).unlock()
        waits = (0.2, 1.7, 0.0)
        measured = list(threads.map(time_of_refusal, lockers, [key] * len(waits), waits))
        for wait, seconds in zip(waits, measured, strict=True):
            assert wait <= seconds < wait + 0.3
        assert held.unlock()
    for locker in lockers:
        locker.close()


def time_of_refusal(locker: Locker, key: str, wait: float) -> float:
    """Return the seconds after which a wait was over."""
    began = time.monotonic()
    with pytest.raises(LockTimeout if wait else LockNotAcquired):
        locker.lock(key, wait=wait)
    return time.monotonic() - began


@each_server
def test_s21_two_who_want_each_others_named_lock_end_by_their_waits(arena: Arena, server: str) -> None:
    keys = (arena.key("one"), arena.key("two"))
    with (
        Locker(arena.target(arena.kinds[0]), **OPTIONS) as one,
        Locker(arena.target(arena.kinds[1]), **OPTIONS) as two,
        ThreadPoolExecutor(2) as threads,
    ):
        held: list[Held] = [one.lock(keys[0]), two.lock(keys[1])]
        began = time.monotonic()
        crossed = [threads.submit(one.lock, keys[1], wait=0.6), threads.submit(two.lock, keys[0], wait=0.9)]
        for each in crossed:
            with pytest.raises(LockTimeout, match="still held"):
                each.result(PATIENCE)
        assert time.monotonic() - began < 5
        assert all(each.unlock() for each in held)
        for key in keys:
            assert locking.carrier(arena.observer, key) is None
            assert one.lock(key, wait=0.5).unlock()
