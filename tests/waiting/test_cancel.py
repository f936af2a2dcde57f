"""S13 and S14 on leases: a cancelled waiter leaves nothing behind, whatever moment it was."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from sqllocks import AsyncSqlLockProvider, LockHandle
from tests.waiting.settings import TTL, Setting, async_until, standing
from tests.waiting.silence import silent_relay

ROUNDS = 400
STEP = 50e-6
"""Seconds by which the cancellation comes later from round to round."""


async def contend(contender: AsyncSqlLockProvider, key: str) -> None:
    """Take the key at once and give it back."""
    began = time.monotonic()
    handle = await contender.require_acquire(key, ttl=TTL, wait=10)
    assert time.monotonic() - began < 1
    assert await contender.release(key, owner_token=handle.owner_token)


async def cancelled(waiter: asyncio.Task[Any]) -> None:
    """Cancel a task as a caller does."""
    await asyncio.sleep(0.3)
    waiter.cancel()


async def cancelled_twice(waiter: asyncio.Task[Any]) -> None:
    """Cancel a task again while it is busy with the first time."""
    await asyncio.sleep(0.3)
    waiter.cancel()
    await asyncio.sleep(0)
    waiter.cancel()


async def left_alone(_waiter: asyncio.Task[Any]) -> None:
    """Let its own surroundings cancel a task."""


@pytest.mark.parametrize("ending", [cancelled, cancelled_twice, left_alone])
def test_s13_a_cancelled_waiter_is_gone(
    cancel_setting: Setting, ending: Callable[[asyncio.Task[Any]], Awaitable[None]]
) -> None:
    async def scenario(setting: Setting) -> None:
        async with (
            AsyncSqlLockProvider(setting.address) as waiter,
            AsyncSqlLockProvider(create_async_engine(setting.address)) as holder,
        ):
            held = await holder.acquire("s13", ttl=TTL)
            task = asyncio.ensure_future(waits(waiter, "s13", 0.3 if ending is left_alone else 30))
            began = time.monotonic()
            await ending(task)
            with pytest.raises((asyncio.CancelledError, TimeoutError)):
                await task
            assert time.monotonic() - began < 1.3
            await gone(setting, waiter, "s13")
            assert await holder.release("s13", owner_token=held.owner_token)
            await contend(holder, "s13")
            await contend(waiter, "s13")

    asyncio.run(scenario(cancel_setting))


def test_s13_a_waiter_can_be_cancelled_while_the_network_is_silent(cancel_setting: Setting) -> None:
    async def scenario(setting: Setting) -> None:
        async with (
            silent_relay(setting.url) as (relay, url),
            AsyncSqlLockProvider(url) as waiter,
            AsyncSqlLockProvider(setting.address) as holder,
        ):
            held = await holder.acquire("silent", ttl=TTL)
            task = asyncio.ensure_future(waits(waiter, "silent", 30))
            await async_until(lambda: standing(waiter, "silent") == 1)
            await asyncio.sleep(0.3)
            relay.silent = True
            await asyncio.sleep(0.7)
            began = time.monotonic()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert time.monotonic() - began < 5
            assert standing(waiter, "silent") == 0
            relay.silent = False
            assert await holder.release("silent", owner_token=held.owner_token)
            await contend(holder, "silent")
            await contend(waiter, "silent")

    asyncio.run(scenario(cancel_setting))


@pytest.mark.timeout(600)
def test_s14_a_waiter_cancelled_around_the_grant_leaves_no_lease(cancel_setting: Setting) -> None:
    async def scenario(setting: Setting) -> None:
        engine = create_async_engine(setting.address)
        async with (
            AsyncSqlLockProvider(setting.address) as waiter,
            AsyncSqlLockProvider(engine) as holder,
        ):
            outcomes = {True: 0, False: 0}
            for number in range(ROUNDS):
                outcomes[await one_round(holder, waiter, number * STEP)] += 1
            await gone(setting, waiter, "s14")
            assert outcomes[False], "no waiter was cancelled"
        await engine.dispose()

    asyncio.run(scenario(cancel_setting))


async def one_round(holder: AsyncSqlLockProvider, waiter: AsyncSqlLockProvider, delay: float) -> bool:
    """Release and cancel ``delay`` seconds later; return whether the waiter got the key before."""
    held = await holder.require_acquire("s14", ttl=TTL, wait=5)
    task = asyncio.ensure_future(waits(waiter, "s14", 30))
    await async_until(lambda: standing(waiter, "s14") == 1)
    await asyncio.sleep(0.005)
    release = asyncio.ensure_future(holder.release("s14", owner_token=held.owner_token))
    moment = time.monotonic() + delay
    while time.monotonic() < moment:  # noqa: ASYNC110 - a timer of the loop is too coarse
        await asyncio.sleep(0)
    task.cancel()
    assert await release
    try:
        won = await task
    except asyncio.CancelledError:
        await contend(holder, "s14")
        return False
    assert await waiter.release("s14", owner_token=won.owner_token)
    await contend(holder, "s14")
    return True


async def waits(provider: AsyncSqlLockProvider, key: str, seconds: float) -> LockHandle:
    """Wait with a limit around it, as callers do."""
    async with asyncio.timeout(seconds):
        return await provider.require_acquire(key, ttl=TTL, wait=30)


async def gone(setting: Setting, provider: AsyncSqlLockProvider, key: str) -> None:
    """See to it that neither line nor registration is left within a second."""
    assert standing(provider, key) == 0
    if setting.kind.server == "postgresql":
        await async_until(lambda: setting.waited() == [], within=1)
