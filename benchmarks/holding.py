"""What holding costs: a block beside a bare acquire and release, and many leases kept at once.

    python -m benchmarks.holding [postgresql] [mysql] [mariadb] [sqlite]

Prints, per server: cycles/s of `SELECT 1`, of acquire + release and of `hold` (medians of five turns,
taken in turn), renewal statements a second and the client's CPU for 1,000 and 10,000 held leases, and
the longest renewal.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from sqlalchemy import URL, create_engine, text

from sqllocks import SqlLockProvider
from sqllocks.backends.base import Answers
from tests.servers import fresh_database, launch, url_for

DRIVERS = {"postgresql": "psycopg", "mysql": "pymysql", "mariadb": "pymysql", "sqlite": "pysqlite"}
CYCLES = 200
TURNS = 5


def per_second(work: Callable[[], object], cycles: int = CYCLES) -> float:
    """Return how often a second the work is done."""
    start = time.perf_counter()
    for _ in range(cycles):
        work()
    return cycles / (time.perf_counter() - start)


def cost_of_a_block(url: URL) -> None:
    """Compare a block with the two calls it stands for."""
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with SqlLockProvider(engine) as locks, engine.connect() as connection:

        def bare() -> None:
            handle = locks.acquire("bare", ttl=30)
            locks.release("bare", owner_token=handle.owner_token)

        def block() -> None:
            with locks.hold("block", ttl=30):
                pass

        works: dict[str, Callable[[], object]] = {
            "SELECT 1": lambda: connection.execute(text("SELECT 1")).all(),
            "acquire + release": bare,
            "hold": block,
        }
        rates: dict[str, list[float]] = {name: [] for name in works}
        for _ in range(TURNS):
            for name, work in works.items():
                rates[name].append(per_second(work))
        medians = {name: statistics.median(values) for name, values in rates.items()}
        for name, rate in medians.items():
            print(f"  {name:18} {rate:8.0f} /s")
        print(f"  hold / bare        {medians['acquire + release'] / medians['hold']:8.2f} × the time")
    engine.dispose()


def many_leases(url: URL, count: int, ttl: float, seconds: float) -> None:
    """Hold many leases and watch what their renewals cost."""
    took: list[float] = []
    with SqlLockProvider(url) as locks, ExitStack() as stack:
        backend: Any = locks._leases._backend
        renew = backend.renew

        async def watched(*arguments: Any, **options: Any) -> Answers:
            start = time.perf_counter()
            answers: Answers = await renew(*arguments, **options)
            took.append(time.perf_counter() - start)
            return answers

        leases = []
        for start in range(0, count, 500):
            keys = [f"many:{n:06}" for n in range(start, min(start + 500, count))]
            leases += stack.enter_context(locks.hold_many(keys, ttl=ttl))
        backend.renew = watched
        cpu, begun = time.process_time(), time.perf_counter()
        time.sleep(seconds)
        cpu, passed = time.process_time() - cpu, time.perf_counter() - begun
        lost = sum(lease.lost for lease in leases)
        print(
            f"  {count:6} held, ttl {ttl:g} s: {len(took) / passed:5.2f} renewals/s, "
            f"{100 * cpu / passed:5.1f} % of a core, longest {1000 * max(took, default=0):5.0f} ms, "
            f"lost {lost}"
        )


def main(names: list[str]) -> None:
    """Run on each server that was named."""
    for name in names or list(DRIVERS):
        with launch(name, durable=True) as server, fresh_database(server) as database:
            url = url_for(database, DRIVERS[name])
            print(f"{name} {server.version}")
            with SqlLockProvider(url) as locks:
                locks.create_table()
            cost_of_a_block(url)
            many_leases(url, 1_000, 9, 12)
            many_leases(url, 10_000, 30, 25)


if __name__ == "__main__":
    main(sys.argv[1:])
