"""What leases cost while they are held: statements, the client's CPU and memory, for 100 to 100,000.

    python -m benchmarks.held [--quick] postgresql=URL …

Each count has a process of its own, in which 64 threads enter `hold(key, ttl=15)` one by one (ttl=60 for
100,000). Memory is what the process grew by, over the number of leases; below 10,000 it is what Python
allocated, as the growth of a process comes in too large steps. Statements and CPU are those of renewing, for
a third of the ttl and a second. Prints rows as JSON.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import sys
import threading
import time
import tracemalloc
from contextlib import AbstractContextManager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from sqlalchemy import make_url

from benchmarks.command import main
from benchmarks.contenders import Family, Place
from benchmarks.own import BLOCKING
from benchmarks.turns import Row, Settings, reason
from sqllocks import SqlLockProvider
from tests.servers import url_for

COUNTS = {"postgresql": (100, 1_000, 10_000, 100_000)}
ELSEWHERE = (10_000,)
THREADS = 64
TTLS = {100_000: 60.0}
TTL = 15.0
TRACED_BELOW = 10_000
LIMIT = 200.0


def measure(place: Place, settings: Settings) -> list[Row]:
    """Return the rows of one database."""
    rows = []
    context = multiprocessing.get_context("spawn")
    for count in (100,) if settings.quick else COUNTS.get(place.server, ELSEWHERE):
        pipe, theirs = context.Pipe()
        ttl = TTLS.get(count, TTL)
        watched = 1.0 if settings.quick else ttl / 3 + 1  # each is renewed once a third of its ttl
        process = context.Process(target=_hold, args=(place, count, ttl, watched, theirs), daemon=True)
        process.start()
        theirs.close()
        rows += _rows(place.server, count, _heard(pipe))
        process.kill()  # the leases go with their database
        process.join()
        print(f"  {count} held", file=sys.stderr)
    return rows


def _heard(pipe: Connection[Any, Any]) -> Any:
    try:
        return pipe.recv() if pipe.poll(LIMIT) else f"no answer within {LIMIT:.0f} s"
    except EOFError:
        return "the process ended"


def _rows(server: str, count: int, answer: Any) -> list[Row]:
    case, label = f"{count:,} held", f"sqllocks, {BLOCKING[server]} threads"
    if isinstance(answer, str):
        return [Row("held", server, case, label, Family.OWN, "", note=f"failed: {answer}")]
    return [
        Row("held", server, case, label, Family.OWN, unit, [value], more={"lost": answer["lost"]})
        for unit, value in answer.items()
        if unit != "lost"
    ]


def _hold(place: Place, count: int, ttl: float, watched: float, pipe: Connection[Any, Any]) -> None:
    logging.disable(logging.CRITICAL)  # how many were lost is counted
    try:
        pipe.send(_held(place, count, ttl, watched))
    except Exception as error:
        pipe.send(reason(error))


def _held(place: Place, count: int, ttl: float, watched: float) -> dict[str, float]:
    url = url_for(make_url(place.url), BLOCKING[place.server]).render_as_string(hide_password=False)
    traced = count < TRACED_BELOW
    locks = SqlLockProvider(url)
    locks.create_table()
    statements = _count_renewals(locks)
    _enter(locks, [f"warm-up:{count}:{number}" for number in range(THREADS)], ttl)
    keys = [f"held:{count}:{number:06}" for number in range(count)]
    gc.collect()
    if traced:
        tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0] if traced else _resident()
    began = time.perf_counter()
    blocks, leases = _enter(locks, keys, ttl)
    took = time.perf_counter() - began
    gc.collect()
    after = tracemalloc.get_traced_memory()[0] if traced else _resident()
    tracemalloc.stop()
    first, cpu, began = len(statements), time.process_time(), time.perf_counter()
    time.sleep(watched)
    cpu, passed = time.process_time() - cpu, time.perf_counter() - began
    return {
        "KiB each": (after - before) / count / 1024,
        "grants/s": count / took,
        "renewal statements/s": (len(statements) - first) / passed,
        "% of a core": 100 * cpu / passed,
        "longest renewal, ms": 1000 * max(statements[first:], default=0.0),
        "lost": sum(lease.lost for lease in leases) + (len(blocks) - count),
    }


def _enter(
    locks: SqlLockProvider, keys: list[str], ttl: float
) -> tuple[list[AbstractContextManager[Any]], list[Any]]:
    """Enter a block for each key, from several threads; return the blocks and their leases."""
    blocks: list[AbstractContextManager[Any]] = []
    leases: list[Any] = []
    errors: list[Exception] = []

    def enter(some: list[str]) -> None:
        try:
            for key in some:
                block = locks.hold(key, ttl=ttl)
                lease = block.__enter__()
                blocks.append(block)
                leases.append(lease)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=enter, args=(keys[n::THREADS],)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return blocks, leases


def _count_renewals(locks: Any) -> list[float]:
    """Return a list that gets the duration of each renewal statement."""
    took: list[float] = []
    backend = locks._leases._backend
    renew = backend.renew

    async def watched(*arguments: Any, **options: Any) -> Any:
        start = time.perf_counter()
        answers = await renew(*arguments, **options)
        took.append(time.perf_counter() - start)
        return answers

    backend.renew = watched
    return took


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main(measure, __doc__)
