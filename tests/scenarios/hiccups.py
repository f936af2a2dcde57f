"""A job whose event loop is blocked by its own code while it holds a lease."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncEngine

from sqllocks import AsyncSqlLockProvider, LeaseLost, LockError, LockHandle
from tests.scenarios import jobs
from tests.scenarios.targets import Target


@dataclass
class Report:
    """What the holder met when its loop ran again."""

    token: int = 0
    lost_at_once: bool = False
    """It was told before any other code of its loop could run."""
    steps: int = 0
    """Steps that were allowed after the loop had been blocked."""
    losses: int = 0
    ended: str = ""
    stale: str = ""
    extended: bool = True


def block_the_loop(target: Target, key: str, *, ttl: float, seconds: float) -> Report:
    """Hold a key and run synchronous code for so long."""
    return jobs.clients.loop.run(_block_the_loop(target, key, ttl, seconds))


async def _block_the_loop(target: Target, key: str, ttl: float, seconds: float) -> Report:
    report = Report()
    engine = target.engine()
    assert isinstance(engine, AsyncEngine)
    async with AsyncSqlLockProvider(target.address) as locks:
        await locks.locked(key)
        try:
            async with locks.hold(key, ttl=ttl) as lease:

                def lost() -> None:
                    report.losses += 1

                lease.on_lost(lost)
                report.token = lease.fencing_token
                handle = LockHandle(True, key, lease.owner_token, lease.expires_at, lease.fencing_token)
                await asyncio.sleep(0)
                time.sleep(seconds)  # noqa: ASYNC251 - this is the fault
                report.lost_at_once = lease.lost
                await asyncio.sleep(0.01)
                report.steps += 1
        except LeaseLost as error:
            report.ended = type(error).__name__
        try:
            async with engine.begin() as connection:
                await locks.guard(connection, handle)
                report.steps += 1
        except LockError as error:
            report.stale = type(error).__name__
        extended = await locks.extend(key, owner_token=handle.owner_token, ttl=ttl)
        report.extended = extended is not None
    await engine.dispose()
    return report
