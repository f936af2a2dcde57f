"""What the scenarios of cancelled callers have in common; the helpers of waiting are the suite's own."""

from __future__ import annotations

import asyncio
import time
import uuid

from sqllocks import AsyncSqlLockProvider, LockHandle
from tests.conformance.kinds import KINDS
from tests.waiting.settings import TTL, Setting, async_until, standing

CANCEL_KINDS = tuple(kind for kind in KINDS if kind.network and kind.asyncio)
AT_ONCE = 1.0
BUSY = "SELECT id FROM information_schema.processlist WHERE db = database() AND command <> 'Sleep'"


async def contend(contender: AsyncSqlLockProvider, key: str) -> None:
    """Take the key at once, long before any ttl is over, and give it back."""
    began = time.monotonic()
    handle = await contender.require_acquire(key, ttl=TTL, wait=10)
    assert time.monotonic() - began < AT_ONCE
    assert await contender.release(key, owner_token=handle.owner_token)


async def waits(provider: AsyncSqlLockProvider, key: str, seconds: float) -> LockHandle:
    """Wait with a limit around it, as callers do."""
    async with asyncio.timeout(seconds):
        return await provider.require_acquire(key, ttl=TTL, wait=30)


async def gone(setting: Setting, provider: AsyncSqlLockProvider, key: str) -> None:
    """See to it that neither line nor registration nor statement is left within a second."""
    assert standing(provider, key) == 0
    if setting.kind.server == "postgresql":
        await async_until(lambda: setting.waited() == [], within=AT_ONCE)
    else:
        # the one who asks is the one who is busy
        await async_until(lambda: len(setting.query(BUSY)) <= 1, within=AT_ONCE)


async def answers_its_own(provider: AsyncSqlLockProvider, teller: AsyncSqlLockProvider) -> None:
    """Ask a different question on each connection of the provider; each must get its own answer."""
    keys = [f"nonce:{uuid.uuid4().hex}" for _ in range(4)]
    told = [await teller.acquire(key, ttl=TTL) for key in keys]
    seen = await asyncio.gather(*(provider.inspect(key) for key in keys))
    assert [(info.lock_key, info.fencing_token) for info in seen if info] == [
        (handle.lock_key, handle.fencing_token) for handle in told
    ]
    for handle in told:
        assert await teller.release(handle.lock_key, owner_token=handle.owner_token)


async def spin(seconds: float) -> None:
    """Let a short time go by on the loop; its timers are too coarse for less than a millisecond."""
    moment = time.monotonic() + seconds
    while time.monotonic() < moment:  # noqa: ASYNC110
        await asyncio.sleep(0)
