"""S14 on leases: whatever moment a cancellation comes at, nobody has to wait for the ttl."""

from __future__ import annotations

import asyncio
import os

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from sqllocks import AsyncSqlLockProvider
from tests.conformance.kinds import Kind
from tests.faults import Relay
from tests.scenarios.cancelling import CANCEL_KINDS, contend, gone, spin, waits
from tests.waiting.settings import TTL, Setting, async_until, standing

STEP = 50e-6
"""Seconds by which the cancellation comes later from round to round."""
FULL = "SQLLOCKS_ALL_ROUNDS" in os.environ
GRANT_ROUNDS = range(0, 400, 1 if FULL else 4)
EXIT_ROUNDS = range(0, 200, 1 if FULL else 2)
SHORT_TTL = 3.0
LONG_HOLD = 5.0

each_kind = pytest.mark.parametrize("kind", CANCEL_KINDS, ids=[kind.name for kind in CANCEL_KINDS])


@pytest.mark.timeout(600)
@each_kind
def test_s14_a_waiter_cancelled_around_the_grant_leaves_no_lease(kind: Kind, setting: Setting) -> None:
    async def scenario() -> None:
        engine = create_async_engine(setting.address)
        async with AsyncSqlLockProvider(setting.address) as waiter, AsyncSqlLockProvider(engine) as holder:
            long_hold = asyncio.create_task(hold_beyond_the_limit_of_its_acquire(waiter))
            outcomes = {True: 0, False: 0}
            for number in GRANT_ROUNDS:
                outcomes[await grant_round(holder, waiter, number * STEP)] += 1
            await long_hold
            await gone(setting, waiter, "s14")
            assert outcomes[False], "no waiter was cancelled"
        await engine.dispose()

    asyncio.run(scenario())


async def hold_beyond_the_limit_of_its_acquire(provider: AsyncSqlLockProvider) -> None:
    """Hold for longer than the ttl, when the limit around the acquire alone is long past."""
    block = provider.hold("s14-long", ttl=SHORT_TTL)
    async with asyncio.timeout(1):
        lease = await block.__aenter__()
    try:
        first = lease.expires_at
        await asyncio.sleep(LONG_HOLD)
        lease.check()
        assert lease.expires_at > first
    finally:
        await block.__aexit__(None, None, None)


async def grant_round(holder: AsyncSqlLockProvider, waiter: AsyncSqlLockProvider, delay: float) -> bool:
    """Release and cancel ``delay`` seconds later; return whether the waiter got the key before."""
    held = await holder.require_acquire("s14", ttl=TTL, wait=5)
    task = asyncio.ensure_future(waits(waiter, "s14", 30))
    await async_until(lambda: standing(waiter, "s14") == 1)
    await asyncio.sleep(0.005)
    release = asyncio.ensure_future(holder.release("s14", owner_token=held.owner_token))
    await spin(delay)
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


@pytest.mark.timeout(600)
@each_kind
def test_s14_a_block_cancelled_while_it_is_left_is_given_back(kind: Kind, setting: Setting) -> None:
    async def scenario() -> None:
        engine = create_async_engine(setting.address)
        async with AsyncSqlLockProvider(setting.address) as leaver, AsyncSqlLockProvider(engine) as other:
            outcomes = {True: 0, False: 0}
            for number in EXIT_ROUNDS:
                outcomes[await exit_round(leaver, number * STEP / 2)] += 1
                await contend(other, "s14-exit")
            assert outcomes[False], "no block was cancelled"
        await engine.dispose()

    asyncio.run(scenario())


async def exit_round(provider: AsyncSqlLockProvider, delay: float) -> bool:
    """Cancel ``delay`` seconds after the body has ended; return whether the block was left before."""
    leaving = asyncio.Event()
    task = asyncio.create_task(hold_and_leave(provider, leaving))
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


async def hold_and_leave(provider: AsyncSqlLockProvider, leaving: asyncio.Event) -> bool:
    """Hold a key, and tell when the body has ended."""
    async with provider.hold("s14-exit", ttl=TTL):
        leaving.set()
    return True


@each_kind
def test_s14_a_block_whose_give_back_stays_unknown_says_so(kind: Kind, setting: Setting) -> None:
    async def scenario() -> str:
        with Relay(setting.url) as relay:
            async with AsyncSqlLockProvider(relay.url) as leaver:
                leaving = asyncio.Event()
                task = asyncio.create_task(hold_when_silent(leaver, relay, leaving))
                await leaving.wait()
                await asyncio.sleep(0.05)
                task.cancel()
                with pytest.raises(asyncio.CancelledError) as caught:
                    await task
                relay.pass_on()
        return " ".join(caught.value.__notes__)

    assert "'s14-unknown' may stay taken" in asyncio.run(scenario())


async def hold_when_silent(provider: AsyncSqlLockProvider, relay: Relay, leaving: asyncio.Event) -> None:
    """Leave a block when the network is gone."""
    async with provider.hold("s14-unknown", ttl=SHORT_TTL):
        relay.fall_silent()
        leaving.set()
