"""What session locks cost: beside the driver's own statements, held by the thousand, and when one is lost.

    python -m benchmarks.session_locks [postgresql] [mysql] [mariadb] [--many 1000,10000] [--rounds 50]

Prints, for each driver and form: cycles of `try_lock` + `unlock` a second with and without the row, those
of the same statements sent by the driver alone (medians of turns taken in turn; `bare`: the two plain
calls that lock and unlock, without any row), and how long after the end of its session a holder knows.
For each server: connections and statements of a locker that holds many locks.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import statistics
import threading
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import URL, create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from sqllocks import AsyncSqlLocker, SqlLocker
from sqllocks.runtime.blocking import BlockingSession
from sqllocks.runtime.sessions_asyncio import AsyncioSession
from tests.conformance.kinds import Kind
from tests.conformance.observing import Observer
from tests.scenarios import locking
from tests.scenarios.arena import NETWORK_KINDS
from tests.servers import fresh_database, launch

CYCLES = 200
TURNS = 7
SETTINGS = {"postgresql": {"max_locks_per_transaction": "512"}}
"""What a server needs for 10,000 locks of one locker."""
PLAIN = {
    "postgresql": ("SELECT pg_try_advisory_lock({})", "SELECT pg_advisory_unlock({})", 4711),
    "mysql": ("SELECT GET_LOCK({}, 0)", "SELECT RELEASE_LOCK({})", "benchmark"),
    "mariadb": ("SELECT GET_LOCK({}, 0)", "SELECT RELEASE_LOCK({})", "benchmark"),
}
LEASE: dict[str, Any] = {"lease": 15, "heartbeat": 5}
Call = tuple[str, Any]
Work = Callable[[], Awaitable[None]]


@contextmanager
def recorded() -> Iterator[list[Call]]:
    """Give the list of the statements that sessions run."""
    calls: list[Call] = []
    blocking, asynchronous = BlockingSession._run, AsyncioSession.run

    def run(self: Any, text: str, arguments: Any, *, rows: bool) -> Any:
        calls.append((text, arguments))
        return blocking(self, text, arguments, rows=rows)

    async def arun(self: Any, text: str, arguments: Any, *, rows: bool) -> Any:
        calls.append((text, arguments))
        return await asynchronous(self, text, arguments, rows=rows)

    BlockingSession._run, AsyncioSession.run = run, arun  # type: ignore[method-assign]
    try:
        yield calls
    finally:
        BlockingSession._run, AsyncioSession.run = blocking, asynchronous  # type: ignore[method-assign]


class Bare:
    """A connection of the driver alone, in autocommit."""

    def __init__(self, kind: Kind, url: URL) -> None:
        self._kind = kind
        self._url = kind.url(url)

    async def open(self) -> None:
        if not self._kind.asyncio:
            self._engine: Any = create_engine(self._url, isolation_level="AUTOCOMMIT")
            self._held: Any = self._engine.connect()
            self._driver: Any = self._held.connection.driver_connection
            return
        self._engine = create_async_engine(self._url, isolation_level="AUTOCOMMIT")
        self._held = await self._engine.connect()
        self._driver = (await self._held.get_raw_connection()).driver_connection

    async def close(self) -> None:
        if self._kind.asyncio:
            await self._held.close()
            await self._engine.dispose()
        else:
            self._held.close()
            self._engine.dispose()

    def runner(self, calls: Sequence[Call]) -> Work:
        """Return what sends these statements, one after the other."""
        if not self._kind.asyncio:
            return lambda: self._blocking(calls)
        return lambda: (self._asyncpg if self._kind.driver == "asyncpg" else self._cursor)(calls)

    async def _blocking(self, calls: Sequence[Call]) -> None:
        for text, arguments in calls:
            cursor = self._driver.cursor()
            cursor.execute(text, arguments)
            if cursor.description:
                cursor.fetchall()
            cursor.close()

    async def _asyncpg(self, calls: Sequence[Call]) -> None:
        for text, arguments in calls:
            await self._driver.fetch(text, *arguments)

    async def _cursor(self, calls: Sequence[Call]) -> None:
        for text, arguments in calls:
            async with self._driver.cursor() as cursor:
                await cursor.execute(text, arguments)
                if cursor.description:
                    await cursor.fetchall()


def locker_of(kind: Kind, url: URL, **options: Any) -> Any:
    """Return a locker in the form of the kind."""
    address = kind.url(url).render_as_string(hide_password=False)
    form: Any = AsyncSqlLocker if kind.asyncio else SqlLocker
    return form(address, **{**LEASE, **options})


async def answered(outcome: Any) -> Any:
    """Return what a call of either form gives."""
    return await outcome if asyncio.iscoroutine(outcome) else outcome


async def closed(locker: Any) -> None:
    """Close a locker of either form."""
    await answered(locker.aclose(1) if hasattr(locker, "aclose") else locker.close(1))


def cycle(locker: Any, key: str) -> Work:
    """Return one try_lock + unlock, as its form is called."""
    if isinstance(locker, AsyncSqlLocker):

        async def asynchronous() -> None:
            lock = await locker.try_lock(key)
            assert lock is not None
            await lock.unlock()

        return asynchronous

    async def blocking() -> None:
        lock = locker.try_lock(key)
        assert lock is not None
        lock.unlock()

    return blocking


async def rates(works: dict[str, Work]) -> dict[str, float]:
    """Return how often a second each work is done: medians of turns taken in turn."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(TURNS + 1):
        for name, work in works.items():
            began = time.perf_counter()
            for _ in range(CYCLES):
                await work()
            if turn:  # the first one warms up
                found[name].append(CYCLES / (time.perf_counter() - began))
    return {name: statistics.median(values) for name, values in found.items()}


async def cost(kind: Kind, url: URL) -> str:
    """Compare the library with the driver's own statements; return a row of the table."""
    bare = Bare(kind, url)
    await bare.open()
    lockers = {fencing: locker_of(kind, url, fencing=fencing) for fencing in (True, False)}
    works: dict[str, Work] = {}
    for fencing, locker in lockers.items():
        name = "row" if fencing else "no row"
        work = cycle(locker, f"cost {name}")
        await work()
        with recorded() as calls:
            await work()
        works[name] = work
        works[f"{name}, driver"] = bare.runner(list(calls))
    lock, unlock, argument = PLAIN[kind.server]
    mark = "$1" if kind.driver == "asyncpg" else "%s"
    works["bare"] = bare.runner([(lock.format(mark), (argument,)), (unlock.format(mark), (argument,))])
    found = await rates(works)
    for locker in lockers.values():
        await closed(locker)
    await bare.close()
    with_row, without = (found[name] / found[f"{name}, driver"] for name in ("row", "no row"))
    return (
        f"| {kind.name} | {found['row']:.0f} | {found['row, driver']:.0f} | {with_row:.2f} "
        f"| {found['no row']:.0f} | {found['no row, driver']:.0f} | {without:.2f} "
        f"| {found['bare']:.0f} | {found['no row'] / found['bare']:.2f} |"
    )


async def detection(kind: Kind, url: URL, rounds: int) -> list[float]:
    """Return the milliseconds from the end of a session until its holder knows."""
    observer, locker = Observer(kind, url), locker_of(kind, url)
    took = []
    for _ in range(rounds):
        key, told = f"killed:{uuid.uuid4().hex[:8]}", threading.Event()
        moments: list[float] = []
        lock = await answered(locker.lock(key))

        def lose(moments: list[float] = moments, told: threading.Event = told) -> None:
            moments.append(time.monotonic())
            told.set()

        lock.on_lost(lose)
        await asyncio.sleep(0.02)
        session = locking.carrier(observer, key)
        assert session is not None
        began = await asyncio.to_thread(locking.kill, observer, session)
        await asyncio.to_thread(told.wait, 30)
        took.append((moments[0] - began) * 1000)
    await closed(locker)
    observer.close()
    return took


def many(kind: Kind, url: URL, count: int, seconds: float) -> str:
    """Hold many locks and count what that takes."""
    observer = Observer(kind, url)
    locker = locker_of(kind, url, max_session_locks=count + 1)
    locker.lock("many:first").unlock()
    before = observer.sessions()
    began = time.perf_counter()
    locks = [locker.lock(f"many:{number:06}") for number in range(count)]
    taking = time.perf_counter() - began
    time.sleep(LEASE["heartbeat"] + 1)
    with recorded() as calls:
        cpu, start = time.process_time(), time.perf_counter()
        time.sleep(seconds)
        passed = time.perf_counter() - start
        cpu = time.process_time() - cpu
        statements = Counter(" ".join(text.split())[:40] for text, _ in calls)
    connections = observer.sessions() - before + 1
    lost = sum(lock.lost for lock in locks)
    began = time.perf_counter()
    for lock in locks:
        lock.unlock()
    freeing = time.perf_counter() - began
    locker.close(1)
    observer.close()
    per_interval = statements.total() * LEASE["heartbeat"] / passed
    return (
        f"| {kind.name} | {count} | {connections} | {per_interval:.1f} | {100 * cpu / passed:.1f} % "
        f"| {1000 * taking / count:.2f} | {1000 * freeing / count:.2f} | {lost} |"
    )


def main() -> None:
    """Print the tables of each server that was named."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.session_locks", description=__doc__)
    parser.add_argument("servers", nargs="*", default=["postgresql", "mysql", "mariadb"])
    parser.add_argument("--many", default="1000,10000", help="how many locks are held at once")
    parser.add_argument("--rounds", type=int, default=50, help="killed sessions of each driver")
    parser.add_argument("--seconds", type=float, default=30.0, help="for how long statements are counted")
    arguments = parser.parse_args()
    logging.getLogger("sqllocks").setLevel(logging.ERROR)  # each killed session is told
    for name in arguments.servers:
        kinds = [kind for kind in NETWORK_KINDS if kind.server == name]
        with launch(name, durable=True, settings=SETTINGS.get(name)) as server, fresh_database(server) as url:
            with SqlLocker(kinds[0].url(url)) as locker:
                locker.create_table()
            print(f"\n{name} {server.version}\n")
            print(
                "| driver | row /s | same by driver | ratio | no row /s | same by driver | ratio "
                "| bare /s | ratio |\n|---|---|---|---|---|---|---|---|---|"
            )
            for kind in kinds:
                print(asyncio.run(cost(kind, url)), flush=True)
            print("\n| driver | holder knows p50, ms | p90 | max |\n|---|---|---|---|")
            for kind in kinds:
                took = sorted(asyncio.run(detection(kind, url, arguments.rounds)))
                print(
                    f"| {kind.name} | {statistics.median(took):.1f} | {took[len(took) * 9 // 10]:.1f} "
                    f"| {took[-1]:.1f} |",
                    flush=True,
                )
            print(
                "\n| driver | locks | connections | statements per heartbeat | CPU "
                "| lock, ms | unlock, ms | lost |\n|---|---|---|---|---|---|---|---|"
            )
            for count in (int(each) for each in arguments.many.split(",")):
                print(many(kinds[0], url, count, arguments.seconds), flush=True)


if __name__ == "__main__":
    main()
