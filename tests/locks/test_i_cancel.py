"""I. Callers that are cancelled or interrupted leave nothing behind, on no connection.

On every asyncio driver, because each has its own way to break off a statement; an observer looks at the
server. Interruptions of the blocking form strike in a process of their own.
"""

from __future__ import annotations

import asyncio
import os
import random
from typing import Any

import pytest

from tests.conformance.polling import Stopwatch, until
from tests.locks.processes import Pool
from tests.locks.subject import LockSubject

ROUNDS = int(os.environ.get("SQLLOCKS_CANCEL_ROUNDS", "30"))
"""Rounds of cancels at random moments; some hundred of them for a night."""


async def broken_off(call: Any, seconds: float) -> Any:
    """Begin a call and cancel it; return the lock where that came too late."""
    task = asyncio.ensure_future(call)
    await asyncio.sleep(seconds)
    task.cancel()
    try:
        return await task
    except asyncio.CancelledError:
        return None


def nothing_left(subject: LockSubject, keys: list[str]) -> None:
    """Assert that no session of the server has a lock of these keys, and that each can be had."""
    until(lambda: not any(subject.carrier(key) for key in keys), within=10, what="the give-back")
    for key in keys:
        lock = subject.do(subject.two.try_lock(key))
        assert lock is not None, key
        assert subject.do(lock.unlock()) is True


def test_c099_a_try_that_is_cancelled_at_any_moment_leaves_no_lock(asyncio_subject: LockSubject) -> None:
    subject = asyncio_subject
    keys = [subject.key(str(number)) for number in range(5)]
    tries = []
    for key in keys:
        watch = Stopwatch()
        lock = subject.do(subject.one.try_lock(key))
        tries.append(watch.seconds)
        assert subject.do(lock.unlock()) is True
    typical = min(tries)  # the first ones are slow, and who comes late cancels nothing
    outcomes = []

    async def several(number: int) -> None:
        keys_now = [keys[number % 5], keys[(number + 1) % 5]]
        calls = [broken_off(subject.one.try_lock(key), random.random() * 1.2 * typical) for key in keys_now]
        for lock in await asyncio.gather(*calls):
            outcomes.append(lock is not None)
            if lock is not None:
                assert await lock.unlock() is True

    for number in range(ROUNDS):
        subject.run(several(number))
    assert False in outcomes
    nothing_left(subject, keys)


def test_c099_a_wait_that_is_cancelled_around_the_grant_leaves_no_lock(asyncio_subject: LockSubject) -> None:
    subject = asyncio_subject
    key = subject.key()
    outcomes = []

    async def around() -> None:
        lock = await subject.two.lock(key)
        waiters = [asyncio.ensure_future(subject.one.lock(key)) for _ in range(3)]
        await asyncio.sleep(random.random() * 0.01)
        await lock.unlock()
        await asyncio.sleep(random.random() * 0.01)
        for waiter in waiters:
            waiter.cancel()
        for waiter in waiters:
            try:
                granted = await waiter
            except asyncio.CancelledError:
                outcomes.append(False)
            else:
                outcomes.append(True)
                assert await granted.unlock() is True

    for _ in range(ROUNDS):
        subject.run(around())
    assert False in outcomes
    nothing_left(subject, [key])


def test_c098_a_waiter_that_is_cancelled_holds_nothing(subject: LockSubject) -> None:
    if not subject.kind.asyncio:
        pytest.skip("the blocking form cannot be cancelled")
    key = subject.key()
    lock = subject.do(subject.one.try_lock(key))
    waiter = subject.start(lambda: subject.two.lock(key))
    assert subject.do(subject.two.try_lock(key)) is None
    waiter.cancel()
    assert subject.do(lock.unlock()) is True
    again = subject.do(subject.one.lock(key, wait=10))
    assert subject.do(again.unlock()) is True


def test_c100_a_caller_that_is_cancelled_already_gets_nothing(subject: LockSubject) -> None:
    if not subject.kind.asyncio:
        pytest.skip("the blocking form cannot be cancelled")
    key = subject.key()

    async def cancelled() -> Any:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return await subject.one.lock(key)

    async def outer() -> None:
        with pytest.raises(asyncio.CancelledError):
            await asyncio.ensure_future(cancelled())

    subject.run(outer())
    lock = subject.do(subject.one.lock(key, wait=10))
    assert subject.do(lock.unlock()) is True


def test_c102_a_cancelled_unlock_is_carried_out(asyncio_subject: LockSubject) -> None:
    subject = asyncio_subject
    keys = [subject.key(str(number)) for number in range(20)]

    async def unlocked(key: str, seconds: float) -> None:
        lock = await subject.one.lock(key)
        task = asyncio.ensure_future(lock.unlock())
        await asyncio.sleep(seconds)
        task.cancel()
        await asyncio.wait({task})

    for number, key in enumerate(keys):
        subject.run(unlocked(key, number * 0.0002))
    nothing_left(subject, keys)


def test_an_interrupted_try_leaves_no_lock(blocking_subject: LockSubject, processes: Pool) -> None:
    subject = blocking_subject
    (process,) = processes.take(subject, 1)
    keys = [subject.key(str(number)) for number in range(30)]
    outcomes = process.ask("interrupt", keys=keys, longest=0.008)
    assert "interrupted" in outcomes.values(), outcomes
    nothing_left(subject, keys)
    key = subject.key()
    assert process.ask("try_lock", key=key) is not None
    assert process.ask("unlock", key=key) is True
