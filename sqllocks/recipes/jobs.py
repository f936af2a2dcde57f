"""Jobs that run on the leader alone: at intervals, or for as long as it leads."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Self

from sqllocks.candidates import check_blocking
from sqllocks.electors import AsyncMemoryElector, MemoryElector
from sqllocks.errors import LockValidationError
from sqllocks.model import Seconds
from sqllocks.protocols import AsyncElector, Elector
from sqllocks.recipes.work import fitted
from sqllocks.runtime import clock
from sqllocks.session_lock import AsyncTerm, Term

__all__ = ["AsyncJobRunner", "JobRunner", "async_every", "every"]

logger = logging.getLogger("sqllocks")

BlockingJob = Callable[[Term], Any] | Callable[[], Any]
AsyncioJob = Callable[[AsyncTerm], Awaitable[Any]] | Callable[[], Awaitable[Any]]


@dataclass(slots=True)
class _Job:
    """``interval`` in seconds, or ``None`` for a job that runs once in each term."""

    call: Callable[..., Any]
    name: str
    interval: float | None
    immediate: bool

    def first(self) -> float:
        """Return the moment of the local clock at which it is due first."""
        return clock.now() + (0 if self.immediate else self.interval or 0)

    def next(self, due: float) -> float:
        """Return the next moment on the same grid; those that were missed are left out, not made up for."""
        assert self.interval is not None
        missed = max(math.floor((clock.now() - due) / self.interval), 0)
        return due + (missed + 1) * self.interval


class _Jobs:
    """What both forms have in common: the list of jobs, and where failures go."""

    def __init__(self, key: str, on_error: Callable[[Exception], Any] | None) -> None:
        self._key = key
        self._on_error = on_error
        self._jobs: list[_Job] = []

    def _add(self, fn: Callable[..., Any], interval: Seconds | None, immediate: bool) -> None:
        seconds = interval.total_seconds() if isinstance(interval, timedelta) else interval
        if seconds is not None and not 0 < seconds < math.inf:
            raise LockValidationError("interval must be above 0", details={"argument": "interval"})
        name = getattr(fn, "__qualname__", repr(fn))
        self._jobs.append(_Job(fitted(fn), name, seconds, immediate))

    def _failed(self, job: _Job, error: Exception, *, lost: bool) -> None:
        """Say what a job raised; the others and its own next runs go on."""
        if lost:
            logger.info("job %s ended with its term: %s", job.name, error)
        elif self._on_error is not None:
            self._on_error(error)
        else:
            logger.error("job %s of %r failed", job.name, self._key, exc_info=error)


class JobRunner(_Jobs):
    """Runs jobs on one instance of all that run the same ``key``; each job in a thread of its own.

    They start when this instance is elected. When the term is lost nothing new is started; a running job sees
    it at ``term.lost`` and ``term.check()``, and is awaited before this instance stands again. Without an
    elector (``None``) this process leads alone. What a job raises is logged, or goes to ``on_error``.
    """

    def __init__(
        self, elector: Elector | None, key: str, *, on_error: Callable[[Exception], Any] | None = None
    ) -> None:
        super().__init__(key, on_error)
        self._elector = elector

    def _add(self, fn: Callable[..., Any], interval: Seconds | None, immediate: bool) -> None:
        check_blocking(fn, "AsyncJobRunner")
        super()._add(fn, interval, immediate)

    def add(self, fn: BlockingJob) -> Self:
        """Have ``fn`` called once in each term; it may run until ``term.lost``.

        It gets the term if it takes an argument.
        """
        self._add(fn, None, True)
        return self

    def every(self, interval: Seconds, fn: BlockingJob, *, immediate: bool = False) -> Self:
        """Have ``fn`` called every ``interval`` seconds of a term, never twice at a time.

        First one interval after the election, with ``immediate`` at once. It gets the term if it takes an
        argument.
        """
        self._add(fn, interval, immediate)
        return self

    def run(self, *, stop: threading.Event | None = None) -> None:
        """Stand, run the jobs, stand again, until ``stop`` is set.

        Then it awaits running jobs, resigns and returns. A running job sees ``stop`` at
        ``term.lost``. Errors are those of ``Elector.run``.
        """
        if self._elector is not None:
            self._elector.run(self._key, self._lead, stop=stop)
            return
        with MemoryElector() as alone:
            alone.run(self._key, self._lead, stop=stop)

    def _lead(self, term: Term) -> None:
        closing = threading.Event()
        threads = [
            threading.Thread(target=self._repeat, args=(job, term, closing), name=f"sqllocks-job-{job.name}")
            for job in self._jobs
        ]
        try:
            for thread in threads:
                thread.start()
            term.wait_lost()
        finally:
            closing.set()
            for thread in threads:
                if thread.ident is not None:
                    thread.join()

    def _repeat(self, job: _Job, term: Term, closing: threading.Event) -> None:
        due = job.first()
        while not closing.wait(max(due - clock.now(), 0)) and not term.lost:
            try:
                job.call(term)
            except Exception as error:  # noqa: BLE001 - goes where the runner was told
                self._failed(job, error, lost=term.lost)
            if job.interval is None:
                return
            due = job.next(due)


class AsyncJobRunner(_Jobs):
    """Runs jobs on one instance of all that run the same ``key``; each job in a task of its own.

    They start when this instance is elected. When the term is lost nothing new is started; running jobs are
    cancelled (``term.lost`` is true then) and awaited before this instance stands again. Without an elector
    (``None``) this process leads alone. What a job raises is logged, or goes to ``on_error``.
    """

    def __init__(
        self, elector: AsyncElector | None, key: str, *, on_error: Callable[[Exception], Any] | None = None
    ) -> None:
        super().__init__(key, on_error)
        self._elector = elector

    def add(self, fn: AsyncioJob) -> Self:
        """Have ``fn`` called once in each term; it may run until it is cancelled.

        It gets the term if it takes an argument.
        """
        self._add(fn, None, True)
        return self

    def every(self, interval: Seconds, fn: AsyncioJob, *, immediate: bool = False) -> Self:
        """Have ``fn`` called every ``interval`` seconds of a term, never twice at a time.

        First one interval after the election, with ``immediate`` at once. It gets the term if it takes an
        argument.
        """
        self._add(fn, interval, immediate)
        return self

    async def run(self, *, stop: asyncio.Event | None = None) -> None:
        """Stand, run the jobs, stand again, until ``stop`` is set or this is cancelled.

        At ``stop``, running jobs at intervals are awaited and those of ``add`` cancelled, then this instance
        resigns and ``run`` returns. A cancel cancels them all, and goes on when they have ended and the key
        is given up. Errors are those of ``AsyncElector.run``.
        """
        halt = asyncio.Event() if stop is None else stop
        if self._elector is not None:
            await self._campaign(self._elector, halt)
            return
        async with AsyncMemoryElector() as alone:
            await self._campaign(alone, halt)

    async def _campaign(self, elector: AsyncElector, halt: asyncio.Event) -> None:
        idle = asyncio.Event()
        idle.set()
        campaign = asyncio.ensure_future(elector.run(self._key, partial(self._lead, halt=halt, idle=idle)))
        halted = asyncio.ensure_future(halt.wait())
        try:
            await asyncio.wait({campaign, halted}, return_when=asyncio.FIRST_COMPLETED)
            if campaign.done():
                return await campaign
            leaving = asyncio.ensure_future(idle.wait())
            await asyncio.wait({campaign, leaving}, return_when=asyncio.FIRST_COMPLETED)
            leaving.cancel()
        finally:
            halted.cancel()
            campaign.cancel()
            with suppress(asyncio.CancelledError):
                await campaign

    async def _lead(self, term: AsyncTerm, *, halt: asyncio.Event, idle: asyncio.Event) -> None:
        idle.clear()
        try:
            async with asyncio.TaskGroup() as group:
                repeated = [job for job in self._jobs if job.interval is not None]
                for job in repeated:
                    group.create_task(self._repeat(job, term, halt))
                lasting = [
                    group.create_task(self._once(job, term)) for job in self._jobs if job.interval is None
                ]
                await halt.wait()
                for task in lasting:
                    task.cancel()
        finally:
            idle.set()

    async def _repeat(self, job: _Job, term: AsyncTerm, halt: asyncio.Event) -> None:
        due = job.first()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(max(due - clock.now(), 0)):
                    await halt.wait()
            if halt.is_set() or term.lost:
                return
            await self._once(job, term)
            due = job.next(due)

    async def _once(self, job: _Job, term: AsyncTerm) -> None:
        try:
            await job.call(term)
        except Exception as error:  # noqa: BLE001 - goes where the runner was told
            self._failed(job, error, lost=term.lost)


def every(
    elector: Elector | None,
    key: str,
    interval: Seconds,
    fn: BlockingJob,
    *,
    immediate: bool = False,
    stop: threading.Event | None = None,
) -> None:
    """Call ``fn`` every ``interval`` seconds on the leader alone, until ``stop``; see ``JobRunner``."""
    JobRunner(elector, key).every(interval, fn, immediate=immediate).run(stop=stop)


async def async_every(
    elector: AsyncElector | None,
    key: str,
    interval: Seconds,
    fn: AsyncioJob,
    *,
    immediate: bool = False,
    stop: asyncio.Event | None = None,
) -> None:
    """Call ``fn`` every ``interval`` seconds on the leader alone, until stopped; see ``AsyncJobRunner``."""
    await AsyncJobRunner(elector, key).every(interval, fn, immediate=immediate).run(stop=stop)
