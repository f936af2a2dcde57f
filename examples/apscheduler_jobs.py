"""APScheduler on two instances: each run of a job happens on one of them.

    python examples/apscheduler_jobs.py [URL]

Both schedulers have the same job, every second from one start on; two runs take place, not four.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from datetime import UTC, datetime
from pathlib import Path

from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.interval import IntervalTrigger

from sqllocks import SqlLockProvider
from sqllocks.contrib.apscheduler import LockedThreadPoolExecutor

runs: list[datetime] = []
enough = threading.Event()


def report() -> None:
    """Do the work of one run."""
    runs.append(datetime.now(UTC))
    if len(runs) == 2:
        enough.set()


def main(url: str) -> None:
    """Start two instances and let them run twice."""
    trigger = IntervalTrigger(seconds=1, start_date=datetime(2020, 1, 1, tzinfo=UTC))
    schedulers = []
    with SqlLockProvider(url) as locks:
        locks.create_table()
        for _ in range(2):
            scheduler = BackgroundScheduler(
                executors={"default": LockedThreadPoolExecutor(locks)}, timezone=UTC
            )
            scheduler.add_job(report, trigger, id="example-report", misfire_grace_time=30)
            scheduler.start()
            schedulers.append(scheduler)
        enough.wait(20)
        for scheduler in schedulers:
            scheduler.shutdown()
    print(f"{len(runs)} runs in the seconds {[run.second for run in runs]}")
    assert len({run.replace(microsecond=0) for run in runs}) == len(runs)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{Path(directory) / 'jobs.sqlite3'}")
