"""S13 on leases: a cancelled waiter is gone at once, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from sqllocks import AsyncSqlLockProvider
from tests.conformance.kinds import Kind
from tests.faults import Relay
from tests.scenarios.cancelling import AT_ONCE, CANCEL_KINDS, answers_its_own, contend, gone, waits
from tests.waiting.settings import TTL, Setting, async_until, standing

WAITED = 0.3
"""Seconds before the cancellation."""
SILENT_LIMIT = 5.0

each_kind = pytest.mark.parametrize("kind", CANCEL_KINDS, ids=[kind.name for kind in CANCEL_KINDS])


async def cancelled(waiter: asyncio.Task[Any]) -> None:
    """Cancel a task as a caller does."""
    await asyncio.sleep(WAITED)
    waiter.cancel()


async def cancelled_twice(waiter: asyncio.Task[Any]) -> None:
    """Cancel a task again while it is busy with the first time."""
    await cancelled(waiter)
    await asyncio.sleep(0)
    waiter.cancel()


async def left_alone(_waiter: asyncio.Task[Any]) -> None:
    """Let its own surroundings cancel a task."""


@each_kind
@pytest.mark.parametrize("ending", [cancelled, cancelled_twice, left_alone])
def test_s13_a_cancelled_waiter_is_gone(
    kind: Kind, setting: Setting, ending: Callable[[asyncio.Task[Any]], Awaitable[None]]
) -> None:
    async def scenario() -> None:
        # two engines: providers of one address share their lines, and the holder is a stranger
        async with (
            AsyncSqlLockProvider(setting.address) as waiter,
            AsyncSqlLockProvider(create_async_engine(setting.address)) as holder,
        ):
            held = await holder.acquire("s13", ttl=TTL)
            task = asyncio.ensure_future(waits(waiter, "s13", WAITED if ending is left_alone else 30))
            began = time.monotonic()
            await ending(task)
            with pytest.raises((asyncio.CancelledError, TimeoutError)):
                await task
            assert time.monotonic() - began < WAITED + AT_ONCE
            await gone(setting, waiter, "s13")
            assert await holder.release("s13", owner_token=held.owner_token)
            await contend(holder, "s13")
            await contend(waiter, "s13")
            await answers_its_own(waiter, holder)

    asyncio.run(scenario())


@each_kind
def test_s13_a_waiter_can_be_cancelled_while_the_network_is_silent(kind: Kind, setting: Setting) -> None:
    async def scenario() -> None:
        with Relay(setting.url) as relay:
            async with (
                AsyncSqlLockProvider(relay.url) as waiter,
                AsyncSqlLockProvider(setting.address) as holder,
            ):
                held = await holder.acquire("silent", ttl=TTL)
                task = asyncio.ensure_future(waits(waiter, "silent", 30))
                await async_until(lambda: standing(waiter, "silent") == 1)
                await asyncio.sleep(WAITED)
                relay.fall_silent()
                await asyncio.sleep(2 * WAITED)  # a look is under way by then
                began = time.monotonic()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert time.monotonic() - began < SILENT_LIMIT
                assert standing(waiter, "silent") == 0
                relay.pass_on()
                assert await holder.release("silent", owner_token=held.owner_token)
                await contend(holder, "silent")
                await contend(waiter, "silent")
                await answers_its_own(waiter, holder)

    asyncio.run(scenario())
