"""Celery beat on two instances: each trigger is sent by one of them.

    export DATABASE_URL=postgresql+psycopg://…          # or a SQLite file, on one machine
    celery --app examples.celery_app beat --schedule /tmp/beat1
    celery --app examples.celery_app beat --schedule /tmp/beat2

So that no broker is needed to look at it, tasks run in beat itself here: each prints a line.
"""

from __future__ import annotations

import os
import time
from datetime import timedelta

from celery import Celery
from celery.schedules import crontab

from sqllocks import SqlLockProvider

locks = SqlLockProvider(os.environ.get("DATABASE_URL", "sqlite:///beat.sqlite3"))
locks.create_table()

app = Celery("example", broker="memory://")
app.conf.sqllocks = locks
app.conf.beat_scheduler = "sqllocks.contrib.celery:LockedScheduler"
app.conf.task_always_eager = True
app.conf.beat_schedule = {
    "tick": {"task": "tick", "schedule": timedelta(seconds=2)},
    "nightly": {"task": "tick", "schedule": crontab(hour="3", minute="0")},
}


@app.task(name="tick")  # type: ignore[untyped-decorator]
def tick() -> None:
    """Do the work of one trigger."""
    print(f"tick of interval {int(time.time()) // 2} in process {os.getpid()}", flush=True)
