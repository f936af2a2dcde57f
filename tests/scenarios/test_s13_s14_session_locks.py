"""S13, S14 on session locks: whatever moment a cancellation comes at, nothing stays behind."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from sqllocks import AsyncSessionLock, AsyncSqlLocker
from tests.conformance.kinds import Kind
from tests.faults import Relay
from tests.scenarios.arena import ALL
from tests.scenarios.cancelling import AT_ONCE, BUSY, CANCEL_KINDS, spin
from tests.waiting import settings
from tests.waiting.settings import Setting, async_until

OPTIONS: dict[str, Any] = {"lease": 3, "heartbeat": 0.75}
WAITED = 0.3
SILENT_LIMIT = 5.0
STEP = 50e-6
"""Seconds by which the cancellation comes later from round to round."""
GRANT_ROUNDS = range(0, 400, 1 if ALL else 20)
EXIT_ROUNDS = range(0, 200, 1 if ALL else 10)

each_kind = pytest.mark.parametrize("kind", CANCEL_KINDS, ids=[kind.name for kind in CANCEL_KINDS])


def locker_at(setting: Setting, address: str | None = None) -> AsyncSqlLocker:
    """Return a locker that shares no line with another one, as in another process."""
    return AsyncSqlLocker(create_async_engine(address or setting.address), **OPTIONS)


def standing(locker: AsyncSqlLocker, key: str) -> int:
    """Return how many stand in line for a key."""
    return settings.standing(SimpleNamespace(_leases=locker._seat.leases), key)


async def contend(contender: AsyncSqlLocker, key: str) -> None:
    """Take the key at once and give it back."""
    began = time.monotonic()
    lock = await contender.lock(key, wait=10)
    assert time.monotonic() - began < AT_ONCE
    assert await lock.unlock()


async def waits(locker: AsyncSqlLocker, key: str, seconds: float) -> AsyncSessionLock:
    """Wait with a limit around it, as callers do."""
    async with asyncio.timeout(seconds):
        return await locker.lock(key, wait=30)


async def gone(setting: Setting, locker: AsyncSqlLocker, key: str) -> None:
    """See to it that nobody waits in the process or at the server."""
    assert standing(locker, key) == 0
    if setting.kind.server == "postgresql":
        await async_until(lambda: setting.waited() == [], within=AT_ONCE)
    else:
        await async_until(lambda: len(setting.query(BUSY)) <= 1, within=AT_ONCE)


@each_kind
def test_s13_a_cancelled_waiter_for_a_session_lock_is_gone(kind: Kind, setting: Setting) -> None:
    async def scenario() -> None:
        keys = ("once", "twice", "around")
        async with locker_at(setting) as waiter, locker_at(setting) as holder:
            held = [await holder.lock(key) for key in keys]
            kept = await waiter.lock("kept")
            tasks = {
                key: asyncio.ensure_future(waits(waiter, key, WAITED if key == "around" else 30))
                for key in keys
            }
            began = time.monotonic()
            await asyncio.sleep(WAITED)
            tasks["once"].cancel()
            tasks["twice"].cancel()
            await asyncio.sleep(0)
            tasks["twice"].cancel()
            for task in tasks.values():
                with pytest.raises((asyncio.CancelledError, TimeoutError)):
                    await task
            assert time.monotonic() - began < WAITED + AT_ONCE
            for key in keys:
                await gone(setting, waiter, key)
            assert all([await lock.unlock() for lock in held])
            for key in keys:
                await contend(holder, key)
                await contend(waiter, key)
            # what the session carries besides is not touched by a cancelled wait
            kept.check()
            assert await kept.held()
            assert await kept.unlock()

    asyncio.run(scenario())


@each_kind
def test_s13_a_waiter_for_a_session_lock_can_be_cancelled_in_a_silent_network(
    kind: Kind, setting: Setting
) -> None:
    async def scenario() -> None:
        with Relay(setting.url) as relay:
            async with locker_at(setting, relay.address) as waiter, locker_at(setting) as holder:
                held = await holder.lock("silent")
                task = asyncio.ensure_future(waits(waiter, "silent", 30))
                await async_until(lambda: standing(waiter, "silent") == 1)
                await asyncio.sleep(WAITED)
                relay.fall_silent()
                await asyncio.sleep(2 * WAITED)  # a try is under way by then
                began = time.monotonic()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert time.monotonic() - began < SILENT_LIMIT
                assert standing(waiter, "silent") == 0
                # what was on its way to the server is done there now, and taken back
                relay.pass_on()
                assert await held.unlock()
                await contend(holder, "silent")
                await contend(waiter, "silent")

    asyncio.run(scenario())


@each_kind
def test_s14_a_waiter_cancelled_around_the_grant_leaves_no_session_lock(kind: Kind, setting: Setting) -> None:
    async def scenario() -> None:
        async with locker_at(setting) as waiter, locker_at(setting) as holder:
            outcomes = {True: 0, False: 0}
            for number in GRANT_ROUNDS:
                outcomes[await grant_round(holder, waiter, number * STEP)] += 1
            await gone(setting, waiter, "s14")
            assert outcomes[False], "no waiter was cancelled"

    asyncio.run(scenario())


async def grant_round(holder: AsyncSqlLocker, waiter: AsyncSqlLocker, delay: float) -> bool:
    """Release and cancel ``delay`` seconds later; return whether the waiter got the key before."""
    held = await holder.lock("s14", wait=5)
    task = asyncio.ensure_future(waits(waiter, "s14", 30))
    await async_until(lambda: standing(waiter, "s14") == 1)
    await asyncio.sleep(0.005)
    release = asyncio.ensure_future(held.unlock())
    await spin(delay)
    task.cancel()
    assert await release
    try:
        won = await task
    except asyncio.CancelledError:
        await contend(holder, "s14")
        return False
    assert await won.unlock()
    await contend(holder, "s14")
    return True


@each_kind
def test_s14_a_block_of_a_session_lock_cancelled_while_it_is_left_is_given_back(
    kind: Kind, setting: Setting
) -> None:
    async def scenario() -> None:
        async with locker_at(setting) as leaver, locker_at(setting) as other:
            # the limit around the call alone does not touch what was granted
            async with asyncio.timeout(1):
                long_held = await leaver.lock("long")
            began = time.monotonic()
            outcomes = {True: 0, False: 0}
            for number in EXIT_ROUNDS:
                outcomes[await exit_round(leaver, number * STEP / 2)] += 1
                await contend(other, "s14-exit")
            assert outcomes[False], "no block was cancelled"
            await asyncio.sleep(max(began + 1.1 - time.monotonic(), 0))
            long_held.check()
            assert await long_held.held()
            assert await long_held.unlock()

    asyncio.run(scenario())


async def exit_round(locker: AsyncSqlLocker, delay: float) -> bool:
    """Cancel ``delay`` seconds after the body has ended; return whether the block was left before."""
    leaving = asyncio.Event()
    task = asyncio.create_task(hold_and_leave(locker, leaving))
    await leaving.wait()
    await spin(delay)
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        return task.result()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert not hasattr(caught.value, "__notes__"), "it was given back, and nothing else is told"
    return False


async def hold_and_leave(locker: AsyncSqlLocker, leaving: asyncio.Event) -> bool:
    """Hold a key, and tell when the body has ended."""
    async with await locker.lock("s14-exit", wait=5):
        leaving.set()
    return True
