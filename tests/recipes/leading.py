"""A candidate that runs jobs, in either form, watched and steered by a test in blocking style."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from sqllocks import AsyncMemoryElector, AsyncSqlElector, MemoryElector, SqlElector
from sqllocks.recipes.schedule import AsyncJobRunner, JobRunner
from sqllocks.runtime.blocking import drive
from tests.conformance.driving import LoopThread

OPTIONS: dict[str, Any] = {"lease": 2, "heartbeat": 0.2, "retry": 0.2}


@dataclass(slots=True)
class Run:
    """One call of a job: when, and in which term."""

    moment: float
    token: int


@dataclass(slots=True)
class Log:
    """What jobs tell the test."""

    runs: list[Run] = field(default_factory=list)
    began: threading.Event = field(default_factory=threading.Event)
    saw_loss: threading.Event = field(default_factory=threading.Event)
    finish: threading.Event = field(default_factory=threading.Event)
    ended: float | None = None

    def note(self, term: Any) -> None:
        self.runs.append(Run(time.monotonic(), term.fencing_token))

    def tokens(self) -> list[int]:
        """Return the terms in which jobs ran, in order."""
        return list(dict.fromkeys(run.token for run in self.runs))


class Candidates:
    """Candidates for one key, on one database or in memory."""

    def __init__(self, where: Any, *, asyncio: bool, loop: LoopThread) -> None:
        self.asyncio = asyncio
        self._where = where
        self._loop = loop
        self._threads = ThreadPoolExecutor(8)
        self._electors: list[Any] = []
        self._memory: Any = None
        self._stops: list[Callable[[], None]] = []
        self._running: list[Future[None]] = []

    def elector(self) -> Any:
        """Return an elector of one more instance."""
        if self._where is None:
            if self._memory is None:
                self._memory = (AsyncMemoryElector if self.asyncio else MemoryElector)(**OPTIONS)
                self._electors.append(self._memory)
            return self._memory
        form = AsyncSqlElector if self.asyncio else SqlElector
        self._electors.append(form(self._where, **OPTIONS))
        return self._electors[-1]

    def runner(self, elector: Any, key: str) -> Any:
        """Return a runner in the form of these candidates."""
        return (AsyncJobRunner if self.asyncio else JobRunner)(elector, key)

    def start(self, runner: Any) -> Future[None]:
        """Let a runner run beside the test, until ``stop``."""
        if not self.asyncio:
            stop = threading.Event()
            self._stops.append(stop.set)
            self._running.append(self._threads.submit(runner.run, stop=stop))
            return self._running[-1]
        made: Future[asyncio.Event] = Future()

        async def run() -> None:
            halt = asyncio.Event()
            made.set_result(halt)
            await runner.run(stop=halt)

        self._running.append(self._loop.start(run()))
        halt, loop = made.result(10), self._loop
        self._stops.append(lambda: loop.run(_set(halt)))
        return self._running[-1]

    def stop(self) -> None:
        """Tell all runners to stop."""
        for each in self._stops:
            each()
        self._stops.clear()

    def close(self) -> None:
        """Stop, and see that nothing was raised."""
        self.stop()
        for running in self._running:
            running.result(15)
        for elector in self._electors:
            if self.asyncio:
                self._loop.run(elector.aclose())
            else:
                elector.close()
        self._threads.shutdown()

    def break_term(self, key: str) -> None:
        """Take the leadership away, as an operator would."""
        elector = self._electors[0]
        seat = elector._seat if self._where is None else elector._lease_seat
        work = seat.leases.break_lock(key)
        assert self._loop.run(work) if self.asyncio else drive(work)

    def leads(self, key: str) -> bool:
        """Tell whether anybody leads."""
        elector = self._electors[0]
        found = self._loop.run(elector.leader(key)) if self.asyncio else elector.leader(key)
        return found is not None

    def noting(self, log: Log) -> Any:
        """Return a job that notes when it ran, and in which term."""

        async def note(term: Any) -> None:
            log.note(term)

        return note if self.asyncio else log.note

    def lasting(self, log: Log) -> Any:
        """Return a job that goes on until its term is lost, and takes its time to end."""

        def blocking(term: Any) -> None:
            log.began.set()
            term.wait_lost()
            _end(log, term)
            log.finish.wait(20)
            log.ended = time.monotonic()

        async def asynchronous(term: Any) -> None:
            log.began.set()
            try:
                await asyncio.Event().wait()
            finally:
                _end(log, term)
                await asyncio.to_thread(log.finish.wait, 20)
                log.ended = time.monotonic()

        return asynchronous if self.asyncio else blocking


def _end(log: Log, term: Any) -> None:
    if term.lost:
        log.saw_loss.set()


async def _set(halt: asyncio.Event) -> None:
    halt.set()
