"""APScheduler 3 on several instances: each run of a job happens on one of them.

    scheduler = BackgroundScheduler(executors={"default": LockedThreadPoolExecutor(provider)})
    scheduler.add_job(report, CronTrigger(hour=3), id="report")

Every instance runs its scheduler with the same jobs. A run is known by the job's ``id`` (give one, the same
on all instances) and the moment for which it was planned; so use cron triggers, or intervals with one
``start_date``.
"""

# pyright: basic
# APScheduler 3 has no types

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from apscheduler.executors.base import run_job
from apscheduler.executors.pool import ThreadPoolExecutor

from sqllocks.errors import LockNotAcquired
from sqllocks.model import Seconds
from sqllocks.protocols import LockProvider
from sqllocks.recipes.schedule import Slots, run_slot

__all__ = ["LockedThreadPoolExecutor"]

logger = logging.getLogger("sqllocks")


class LockedThreadPoolExecutor(ThreadPoolExecutor):
    """A thread pool that runs what no other instance runs.

    The lock of a run is kept for at least ``ttl`` (seconds), and renewed while the job takes longer:
    instances may be late by less than that. With ``slots`` one may be late by any time: a run
    happens once for good.
    """

    def __init__(
        self,
        provider: LockProvider,
        max_workers: int = 10,
        pool_kwargs: dict[str, Any] | None = None,
        *,
        ttl: Seconds = 60,
        slots: Slots | None = None,
    ) -> None:
        super().__init__(max_workers, pool_kwargs)
        self._provider = provider
        self._ttl = ttl
        self._slots = slots

    def _do_submit_job(self, job: Any, run_times: Sequence[datetime]) -> None:
        # what APScheduler calls its extension point for executors
        def done(future: Future[list[Any]]) -> None:
            error = future.exception()
            if error is not None:
                self._run_job_error(job.id, error, error.__traceback__)
            else:
                self._run_job_success(job.id, future.result())

        self._pool.submit(self._run, job, run_times).add_done_callback(done)

    def _run(self, job: Any, run_times: Sequence[datetime]) -> list[Any]:
        """Run what is due and nobody else's; return APScheduler's events."""
        events: list[Any] = []
        for planned in run_times:
            run = partial(run_job, job, job._jobstore_alias, [planned], self._logger.name)
            if _missed(job, planned):  # it says so, and another instance may have been in time
                events += run()
                continue
            try:
                slot = run_slot(
                    self._provider,
                    f"apscheduler:{job.id}",
                    planned,
                    run,
                    ttl=self._ttl,
                    at_least=self._ttl,
                    slots=self._slots,
                )
            except LockNotAcquired as busy:
                logger.debug("%s", busy)
            else:
                events += slot.result
        return events


def _missed(job: Any, planned: datetime) -> bool:
    grace = job.misfire_grace_time
    return grace is not None and datetime.now(UTC) - planned > timedelta(seconds=grace)
