"""Two schedulers with the same jobs: each planned run happens once."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_MISSED
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger

from sqllocks import MemoryLockProvider
from sqllocks.contrib.apscheduler import LockedThreadPoolExecutor
from tests.conformance.polling import until

PAST = datetime(2020, 1, 1, tzinfo=UTC)


class Instances:
    """Two schedulers over one provider."""

    def __init__(self) -> None:
        self.locks = MemoryLockProvider()
        self.events: list[Any] = []
        self.schedulers = [self._scheduler() for _ in range(2)]

    def _scheduler(self) -> BackgroundScheduler:
        executor = LockedThreadPoolExecutor(self.locks)
        scheduler = BackgroundScheduler(executors={"default": executor}, timezone=UTC)
        scheduler.add_listener(self.events.append, EVENT_JOB_ERROR | EVENT_JOB_MISSED)
        return scheduler

    def run(self, until_done: Any) -> None:
        for scheduler in self.schedulers:
            scheduler.start()
        until(until_done, within=20)
        for scheduler in self.schedulers:
            scheduler.shutdown()


def test_each_run_happens_on_one_instance() -> None:
    instances, runs = Instances(), list[datetime]()
    for scheduler in instances.schedulers:
        trigger = IntervalTrigger(seconds=1, start_date=PAST)
        scheduler.add_job(lambda: runs.append(datetime.now(UTC)), trigger, id="job", misfire_grace_time=60)
    instances.run(lambda: len(runs) >= 2)
    keys = [info.lock_key for info in instances.locks.list_locks(prefix="schedule:apscheduler:job:")]
    assert len(keys) == len(runs)


def test_a_job_that_fails_is_told_once_and_not_repeated_elsewhere() -> None:
    instances, ran = Instances(), list[int]()
    planned = datetime.now(UTC)

    def failing() -> None:
        ran.append(threading.get_ident())
        raise ZeroDivisionError

    for scheduler in instances.schedulers:
        scheduler.add_job(failing, DateTrigger(planned), id="job", misfire_grace_time=60)
    instances.run(lambda: all(not scheduler.get_jobs() for scheduler in instances.schedulers) and ran)
    assert len(ran) == 1
    assert [event.code for event in instances.events] == [EVENT_JOB_ERROR]


def test_a_run_that_was_missed_takes_no_lock_from_an_instance_in_time() -> None:
    instances, ran = Instances(), list[int]()
    late, timely = instances.schedulers
    late.add_job(lambda: ran.append(1), DateTrigger(PAST), id="job", misfire_grace_time=1)
    timely.add_job(lambda: ran.append(2), DateTrigger(PAST), id="job", misfire_grace_time=None)
    instances.run(lambda: ran and instances.events)
    assert ran == [2]
    assert [event.code for event in instances.events] == [EVENT_JOB_MISSED]
