"""E. Callers that die, or are interrupted at any moment."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from sqllocks import LockHandle
from tests.conformance.calls import TTL
from tests.conformance.driving import Client
from tests.conformance.polling import Stopwatch, until
from tests.conformance.processes import Process, ProcessPool
from tests.conformance.subject import Subject

MOMENTS = 40


def test_c068_a_killed_process_holds_no_longer_than_its_ttl(table_subject: Subject) -> None:
    key = table_subject.key()
    process = Process()
    process.ask("connect", address=table_subject.address, asyncio_form=table_subject.kind.asyncio)
    handle = process.ask("call", method="acquire", arguments=(key,), ttl=60)
    longer = process.ask("call", method="extend", arguments=(key,), owner_token=handle.owner_token, ttl=2.0)
    process.kill()
    assert table_subject.b.acquire(key, ttl=TTL).acquired is False
    until(lambda: table_subject.b.acquire(key, ttl=TTL).acquired, within=6, what="the ttl of a dead holder")
    late = table_subject.stored(key).acquired_at - longer.expires_at
    assert timedelta() <= late < timedelta(seconds=1)
    assert table_subject.stored(key).fencing_token > handle.fencing_token


def keys_in_use(subject: Subject) -> tuple[list[str], float]:
    """Return keys, every second one with a row, and the seconds that an acquire may take."""
    keys = [subject.key(f"moment-{number}") for number in range(MOMENTS)]
    watch = Stopwatch()
    for key in keys[::2]:
        handle = subject.a.acquire(key, ttl=TTL)
        subject.a.release(key, owner_token=handle.owner_token)
    return keys, watch.seconds / len(keys)  # two calls for each row


def nothing_left(subject: Subject, keys: list[str]) -> None:
    """Assert that each key is given back soon, long before its ttl."""
    until(
        lambda: not any(subject.b.locked(key) for key in keys),
        within=5,
        what="the give-back of what was interrupted",
    )
    for key in keys:
        assert subject.b.acquire(key, ttl=TTL).acquired is True


def still_working(client: Client, subject: Subject) -> None:
    """Assert that interruptions have not used up what the provider works with."""
    calls = [client.start("acquire", subject.key(), ttl=TTL) for _ in range(4)]
    assert all(call.result(10).acquired for call in calls)


async def cancelled_after(provider: Any, key: str, seconds: float, times: int = 1) -> LockHandle | None:
    """Acquire and cancel; return the handle where the cancel came too late."""
    task = asyncio.ensure_future(provider.acquire(key, ttl=TTL))
    for _ in range(times):
        if seconds:  # else it is cancelled before it began
            await asyncio.sleep(seconds)
        task.cancel()
    try:
        handle = await task
    except asyncio.CancelledError:
        return None
    assert isinstance(handle, LockHandle)
    return handle


@pytest.mark.parametrize("times", [1, 2])
def test_c069_a_cancelled_acquire_leaves_nothing(asyncio_subject: Subject, times: int) -> None:
    subject = asyncio_subject
    keys, typical = keys_in_use(subject)
    cancelled = []
    for number, key in enumerate(keys):
        pause = 2 * typical * number / len(keys) / times
        handle = subject.run(cancelled_after(subject.a.provider, key, pause, times))
        if handle is None:
            cancelled.append(key)
        else:
            assert handle.acquired is True
            assert subject.a.release(key, owner_token=handle.owner_token) is True
    assert cancelled
    nothing_left(subject, cancelled)
    still_working(subject.a, subject)


def test_c069_a_cancelled_waiter_leaves_nothing(asyncio_subject: Subject) -> None:
    subject = asyncio_subject
    key = subject.key()
    handle = subject.a.acquire(key, ttl=TTL)
    waiters = [subject.b.start("require_acquire", key, ttl=TTL, wait=None) for _ in range(3)]
    for _ in range(3):  # the waiters, begun before on the same loop, have looked by then
        assert subject.b.locked(key) is True
    assert not any(waiter.done() for waiter in waiters)
    for waiter in waiters:
        waiter.cancel()
    assert subject.a.release(key, owner_token=handle.owner_token) is True
    assert subject.a.locked(key) is False
    assert subject.a.acquire(key, ttl=TTL).acquired is True


def test_c069_an_interrupted_acquire_leaves_nothing(
    blocking_table_subject: Subject, processes: ProcessPool
) -> None:
    subject = blocking_table_subject
    keys, typical = keys_in_use(subject)
    (process,) = processes.take(subject, 1)
    outcomes = process.ask("interrupt", keys=keys, longest=max(2 * typical, 0.001))
    assert set(outcomes.values()) <= {"acquired", "interrupted"}, outcomes
    interrupted = [key for key, outcome in outcomes.items() if outcome == "interrupted"]
    assert interrupted
    nothing_left(subject, interrupted)
    process.ask("work_on", keys=[subject.key() for _ in range(4)])


def test_c069_an_acquire_interrupted_at_any_line_leaves_nothing(
    blocking_table_subject: Subject, processes: ProcessPool
) -> None:
    subject = blocking_table_subject
    (process,) = processes.take(subject, 1)
    lines = process.ask("count_lines", key=subject.key())
    assert lines > MOMENTS
    keys = {subject.key(f"line-{line}"): line for line in range(1, lines + 1, max(1, lines // 60))}
    outcomes = process.ask("interrupt_at_lines", keys=keys)
    assert set(outcomes.values()) <= {"acquired", "interrupted"}, outcomes
    interrupted = [key for key, outcome in outcomes.items() if outcome == "interrupted"]
    assert len(interrupted) > MOMENTS
    nothing_left(subject, interrupted)
    process.ask("work_on", keys=[subject.key() for _ in range(4)])
