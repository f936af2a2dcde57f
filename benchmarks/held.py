"""What leases cost while they are held: statements, the client's CPU and memory, for 100 to 100,000.

    python -m benchmarks.held [--quick] postgresql=URL …

Each count has a process of its own, in which 64 threads, or 64 tasks of asyncio, enter `hold(key, ttl=15)`
one by one (ttl=60 for 100,000). Memory is what the process grew by, over the number of leases; below 10,000
it is what Python allocated, as the growth of a process comes in too large steps. Statements and CPU are those
of renewing, for a third of the ttl and a second. Prints rows as JSON.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import multiprocessing
import os
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from sqlalchemy import make_url

from benchmarks.command import main
from benchmarks.contenders import Family, Place
from benchmarks.own import ASYNCIO, BLOCKING
from benchmarks.turns import Row, Settings, reason
from sqllocks import AsyncSqlLockProvider, SqlLockProvider
from tests.servers import url_for

COUNTS = {"postgresql": (100, 1_000, 10_000, 100_000)}
ELSEWHERE = (10_000,)
COUNT_OF_TASKS = 10_000
CALLERS = 64
TTLS = {100_000: 60.0}
TTL = 15.0
TRACED_BELOW = 10_000
LIMIT = 200.0


def measure(place: Place, settings: Settings) -> list[Row]:
    """Return the rows of one database."""
    rows = []
    for count in (100,) if settings.quick else COUNTS.get(place.server, ELSEWHERE):
        ttl = TTLS.get(count, TTL)
        watched = 1.0 if settings.quick else ttl / 3 + 1  # each is renewed once a third of its ttl
        threads = _Task(place, BLOCKING[place.server], count, ttl, watched)
        rows += _rows(threads, "threads", _measured(_held, threads))
        if settings.quick or (place.server in COUNTS and count == COUNT_OF_TASKS):
            tasks = _Task(place, ASYNCIO[place.server][0], count, ttl, watched)
            rows += _rows(tasks, "tasks", _measured(_held_by_tasks, tasks))
        print(f"  {count} held", file=sys.stderr)
    return rows


@dataclass
class _Task:
    """What a process of its own does."""

    place: Place
    driver: str
    count: int
    ttl: float
    watched: float

    @property
    def keys(self) -> list[str]:
        return [f"held:{self.driver}:{self.count}:{number:06}" for number in range(self.count)]

    @property
    def warm_up(self) -> list[str]:
        return [f"warm-up:{self.driver}:{self.count}:{number}" for number in range(CALLERS)]

    @property
    def url(self) -> str:
        return url_for(make_url(self.place.url), self.driver).render_as_string(hide_password=False)


def _measured(work: Callable[[_Task], dict[str, float]], task: _Task) -> Any:
    context = multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe()
    process = context.Process(target=_hold, args=(work, task, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        return _heard(pipe)
    finally:
        process.kill()  # the leases go with their database
        process.join()


def _heard(pipe: Connection[Any, Any]) -> Any:
    try:
        return pipe.recv() if pipe.poll(LIMIT) else f"no answer within {LIMIT:.0f} s"
    except EOFError:
        return "the process ended"


def _rows(task: _Task, callers: str, answer: Any) -> list[Row]:
    server, case, label = task.place.server, f"{task.count:,} held", f"sqllocks, {task.driver} {callers}"
    if isinstance(answer, str):
        return [Row("held", server, case, label, Family.OWN, "", note=f"failed: {answer}")]
    return [
        Row("held", server, case, label, Family.OWN, unit, [value], more={"lost": answer["lost"]})
        for unit, value in answer.items()
        if unit != "lost"
    ]


def _hold(work: Callable[[_Task], dict[str, float]], task: _Task, pipe: Connection[Any, Any]) -> None:
    logging.disable(logging.CRITICAL)  # how many were lost is counted
    try:
        pipe.send(work(task))
    except Exception as error:
        pipe.send(reason(error))


@dataclass
class _Gauge:
    """What holding costs this process: memory and time from `start`, renewals from `watch`."""

    task: _Task
    statements: list[float]
    answer: dict[str, float] = field(default_factory=dict[str, float])

    def start(self) -> None:
        gc.collect()
        self._traced = self.task.count < TRACED_BELOW
        if self._traced:
            tracemalloc.start()
        self._memory, self._began = self._used(), time.perf_counter()

    def held(self) -> None:
        took = time.perf_counter() - self._began
        gc.collect()
        self.answer["KiB each"] = (self._used() - self._memory) / self.task.count / 1024
        self.answer["grants/s"] = self.task.count / took
        tracemalloc.stop()

    def watch(self) -> None:
        self._first, self._cpu, self._began = len(self.statements), time.process_time(), time.perf_counter()

    def watched(self, leases: list[Any]) -> dict[str, float]:
        cpu, passed = time.process_time() - self._cpu, time.perf_counter() - self._began
        took = self.statements[self._first :]
        lost = sum(lease.lost for lease in leases) + (self.task.count - len(leases))
        return self.answer | {
            "renewal statements/s": len(took) / passed,
            "% of a core": 100 * cpu / passed,
            "longest renewal, ms": 1000 * max(took, default=0.0),
            "lost": lost,
        }

    def _used(self) -> int:
        return tracemalloc.get_traced_memory()[0] if self._traced else _resident()


def _held(task: _Task) -> dict[str, float]:
    locks = SqlLockProvider(task.url)
    locks.create_table()
    gauge = _Gauge(task, _count_renewals(locks))
    _enter(locks, task.warm_up, task.ttl)
    keys = task.keys
    gauge.start()
    blocks = _enter(locks, keys, task.ttl)
    gauge.held()
    gauge.watch()
    time.sleep(task.watched)
    return gauge.watched([lease for _, lease in blocks])


def _held_by_tasks(task: _Task) -> dict[str, float]:
    return asyncio.run(_hold_by_tasks(task))


async def _hold_by_tasks(task: _Task) -> dict[str, float]:
    locks = AsyncSqlLockProvider(task.url)
    await locks.create_table()
    gauge = _Gauge(task, _count_renewals(locks))
    blocks: list[tuple[Any, Any]] = []

    async def enter(some: list[str]) -> None:
        for key in some:
            block = locks.hold(key, ttl=task.ttl)
            blocks.append((block, await block.__aenter__()))

    async def enter_all(keys: list[str]) -> None:
        await asyncio.gather(*(enter(keys[n::CALLERS]) for n in range(CALLERS)))

    await enter_all(task.warm_up)
    warm, keys = len(blocks), task.keys
    gauge.start()
    await enter_all(keys)
    gauge.held()
    gauge.watch()
    late = await _lateness(task.watched)
    return gauge.watched([lease for _, lease in blocks[warm:]]) | {"loop blocked, ms": 1000 * late}


async def _lateness(seconds: float) -> float:
    """Return by how much a timer of this event loop was late at most, within some seconds."""
    end, latest = time.perf_counter() + seconds, 0.0
    while (start := time.perf_counter()) < end:
        await asyncio.sleep(0.005)
        latest = max(latest, time.perf_counter() - start - 0.005)
    return latest


def _enter(locks: SqlLockProvider, keys: list[str], ttl: float) -> list[tuple[Any, Any]]:
    """Enter a block for each key, from several threads; return the blocks and their leases."""
    blocks: list[tuple[Any, Any]] = []
    errors: list[Exception] = []

    def enter(some: list[str]) -> None:
        try:
            for key in some:
                block = locks.hold(key, ttl=ttl)
                blocks.append((block, block.__enter__()))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=enter, args=(keys[n::CALLERS],)) for n in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return blocks


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
