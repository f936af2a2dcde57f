"""How long a released key takes to reach a waiter in another process, and what many waiters cost.

    python -m benchmarks.handover postgresql+asyncpg://user:password@host/database mysql+pymysql://…
    python -m benchmarks.handover --rounds 300 --waiters 1000 --asyncio postgresql+psycopg://…

A key that is held for a while finds a machine at rest, with cold caches, as most locks do; a short
``--hold`` measures hand-overs in quick succession. "select 1" is the time of that statement on a
connection of the same driver, in the same run and after the same pauses. Creates the lock table where
it is missing, and leaves a few free rows in it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import random
import statistics
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from sqlalchemy import create_engine, make_url, text
from sqlalchemy.ext.asyncio import create_async_engine

from sqllocks import AsyncSqlLockProvider, LockTimeout, SqlLockProvider
from tests.waiting.counting import Counter

ASYNCIO_DRIVERS = {"asyncpg", "aiomysql", "asyncmy", "aiosqlite"}
TTL = 60.0
WARM_UP = 8
"""Rounds that are not counted: connections are opened, statements prepared."""


class Side:
    """A provider in either form, asked in blocking style."""

    def __init__(self, bind: Any, *, is_async: bool) -> None:
        self._runner = asyncio.Runner() if is_async else None
        self.provider: Any = AsyncSqlLockProvider(bind) if is_async else SqlLockProvider(bind)

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        return self.timed(method, *arguments, **options)[0]

    def timed(self, method: str, *arguments: Any, **options: Any) -> tuple[Any, float, float]:
        """Return the result, and the moments just before and after the call, as its caller sees them."""
        called = getattr(self.provider, method)
        if self._runner is not None:
            return self._runner.run(self._awaited(called, arguments, options))
        began = time.monotonic()
        result = called(*arguments, **options)
        return result, began, time.monotonic()

    async def _awaited(
        self, called: Callable[..., Any], arguments: Sequence[Any], options: dict[str, Any]
    ) -> tuple[Any, float, float]:
        began = time.monotonic()
        result = await called(*arguments, **options)
        return result, began, time.monotonic()

    def close(self) -> None:
        self.call("close" if self._runner is None else "aclose")
        if self._runner is not None:
            self._runner.close()


def wait_elsewhere(url: str, is_async: bool, pipe: Connection[Any, Any]) -> None:
    """In the other process: wait for a key, tell when it was granted, give it back."""
    side = Side(url, is_async=is_async)
    while (key := pipe.recv()) is not None:
        handle, _, granted = side.timed("require_acquire", key, ttl=TTL, wait=TTL)
        pipe.send(granted)
        side.call("release", key, owner_token=handle.owner_token)
        pipe.send("released")
    side.close()


def hand_over(url: str, is_async: bool, rounds: int, hold: float) -> list[float]:
    """Return the seconds from each call of ``release`` to the grant of the other process."""
    context = multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe()
    other = context.Process(target=wait_elsewhere, args=(url, is_async, theirs), daemon=True)
    other.start()
    side = Side(url, is_async=is_async)
    key = f"benchmark:{uuid.uuid4().hex[:12]}"
    took: list[float] = []
    for _ in range(WARM_UP + rounds):
        handle = side.call("require_acquire", key, ttl=TTL, wait=TTL)
        pipe.send(key)
        time.sleep(hold * (1 + random.random()))
        _, released, _ = side.timed("release", key, owner_token=handle.owner_token)
        took.append(pipe.recv() - released)
        pipe.recv()
    pipe.send(None)
    other.join()
    side.close()
    return took[WARM_UP:]


def select_one(url: str, is_async: bool, rounds: int, pause: float) -> list[float]:
    """Return the seconds of ``SELECT 1`` on one connection, with pauses in between."""
    one = text("SELECT 1")

    async def awaited() -> list[float]:
        engine = create_async_engine(url, isolation_level="AUTOCOMMIT")
        took: list[float] = []
        async with engine.connect() as connection:
            for _ in range(rounds):
                await asyncio.sleep(pause)
                began = time.perf_counter()
                (await connection.execute(one)).all()
                took.append(time.perf_counter() - began)
        await engine.dispose()
        return took

    if is_async:
        return asyncio.run(awaited())
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        took = [_timed(lambda: connection.execute(one).all(), pause) for _ in range(rounds)]
    engine.dispose()
    return took


def _timed(work: Callable[[], Any], pause: float) -> float:
    time.sleep(pause)
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def many_waiters(url: str, is_async: bool, count: int, seconds: float) -> tuple[float, int]:
    """Return the statements a second of ``count`` waiters for one key, and their connections."""
    if is_async:
        return asyncio.run(_many_tasks(url, count, seconds))
    return _many_threads(url, count, seconds)


async def _many_tasks(url: str, count: int, seconds: float) -> tuple[float, int]:
    engine = create_async_engine(url)
    counter = Counter(engine)
    key = f"benchmark:{uuid.uuid4().hex[:12]}"
    async with AsyncSqlLockProvider(url) as holder, AsyncSqlLockProvider(engine) as provider:
        await holder.acquire(key, ttl=600)
        waiters = [
            asyncio.create_task(_patient(provider.require_acquire(key, ttl=TTL, wait=seconds + 2)))
            for _ in range(count)
        ]
        await asyncio.sleep(1.0)
        before = counter.statements
        await asyncio.sleep(seconds)
        rate, connections = (counter.statements - before) / seconds, counter.open
        await asyncio.gather(*waiters)
    await engine.dispose()
    return rate, connections


async def _patient(wait: Any) -> None:
    with contextlib.suppress(LockTimeout):
        await wait


def _many_threads(url: str, count: int, seconds: float) -> tuple[float, int]:
    engine = create_engine(url)
    counter = Counter(engine)
    key = f"benchmark:{uuid.uuid4().hex[:12]}"

    def wait() -> None:
        with contextlib.suppress(LockTimeout):
            provider.require_acquire(key, ttl=TTL, wait=seconds + 4)

    with SqlLockProvider(url) as holder, SqlLockProvider(engine) as provider:
        holder.acquire(key, ttl=600)
        threads = [threading.Thread(target=wait) for _ in range(count)]
        for thread in threads:
            thread.start()
        time.sleep(1.0)
        before = counter.statements
        time.sleep(seconds)
        rate, connections = (counter.statements - before) / seconds, counter.open
        for thread in threads:
            thread.join()
    engine.dispose()
    return rate, connections


def report(url: str, arguments: argparse.Namespace) -> str:
    """Measure one database and return its row of the table."""
    is_async = arguments.asyncio or make_url(url).get_driver_name() in ASYNCIO_DRIVERS
    side = Side(url, is_async=is_async)
    side.call("create_table")
    side.close()
    one = statistics.median(select_one(url, is_async, 20, arguments.hold)) * 1000
    took = [seconds * 1000 for seconds in hand_over(url, is_async, arguments.rounds, arguments.hold)]
    rate, connections = many_waiters(url, is_async, arguments.waiters, arguments.seconds)
    name = f"{make_url(url).drivername} {'asyncio' if is_async else 'blocking'}"
    return (
        f"| {name} | {one:.2f} | {_percentile(took, 50):.1f} | {_percentile(took, 99):.1f} "
        f"| {max(took):.1f} | {rate:.1f} | {connections} |"
    )


def _percentile(values: Sequence[float], percent: int) -> float:
    return sorted(values)[min(len(values) * percent // 100, len(values) - 1)]


def main() -> None:
    """Print a table with one row for each database."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.handover", description=__doc__)
    parser.add_argument("urls", nargs="+", metavar="URL")
    parser.add_argument("--rounds", type=int, default=200, help="hand-overs to measure")
    parser.add_argument(
        "--hold", type=float, default=0.4, help="seconds for which the key is held, and up to twice that"
    )
    parser.add_argument("--waiters", type=int, default=1000, help="waiters for one key in one process")
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="for how long their statements are counted"
    )
    parser.add_argument("--asyncio", action="store_true", help="the asyncio form, where a driver has both")
    arguments = parser.parse_args()
    print(
        f"| driver | select 1, ms | hand-over p50, ms | p99, ms | longest, ms "
        f"| statements/s of {arguments.waiters} waiters | connections |\n|---|---|---|---|---|---|---|"
    )
    for url in arguments.urls:
        print(report(url, arguments), flush=True)


if __name__ == "__main__":
    main()
