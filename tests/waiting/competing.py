"""A process that waits for a key several times, and tells when it had it."""

from __future__ import annotations

import asyncio
import time
from multiprocessing.connection import Connection

from sqllocks import AsyncSqlLockProvider, SqlLockProvider

ROUNDS = 5

Grant = tuple[int, float, float]
"""The token of a grant, when it was won, and the last moment in which it was surely held."""


def compete(address: str, asyncio_form: bool, key: str, pipe: Connection) -> None:
    """Win the key some times, and send the grants."""
    with pipe:
        pipe.send(asyncio.run(asynchronous(address, key)) if asyncio_form else blocking(address, key))


def blocking(address: str, key: str) -> list[Grant]:
    grants = []
    with SqlLockProvider(address) as provider:
        for _ in range(ROUNDS):
            handle = provider.require_acquire(key, ttl=60, wait=60)
            won = time.monotonic()
            provider.locked(key)
            grants.append((handle.fencing_token, won, time.monotonic()))
            provider.release(key, owner_token=handle.owner_token)
    return grants


async def asynchronous(address: str, key: str) -> list[Grant]:
    grants = []
    async with AsyncSqlLockProvider(address) as provider:
        for _ in range(ROUNDS):
            handle = await provider.require_acquire(key, ttl=60, wait=60)
            won = time.monotonic()
            await provider.locked(key)
            grants.append((handle.fencing_token, won, time.monotonic()))
            await provider.release(key, owner_token=handle.owner_token)
    return grants
