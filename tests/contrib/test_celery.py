"""Two instances of beat: each trigger is sent by one of them."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from celery.schedules import crontab, schedule

from sqllocks import BackendUnavailable, MemoryLockProvider
from sqllocks.contrib.celery import LockedScheduler, planned_moment

INTERVAL = 0.3


class Beat:
    """One instance, driven by the test in place of beat's own loop."""

    def __init__(self, path: Path, locks: Any, sent: list[str], plan: dict[str, Any]) -> None:
        app = Celery("test", broker="memory://", set_as_current=False)
        app.conf.update(sqllocks=locks, task_always_eager=True, beat_schedule=plan)

        @app.task(name="note")  # type: ignore[untyped-decorator]
        def note(name: str) -> None:
            sent.append(name)

        self.scheduler = LockedScheduler(app=app, schedule_filename=str(path))

    def tick(self) -> None:
        self.scheduler.tick()


@pytest.fixture
def beats(tmp_path: Path) -> Iterator[list[Beat]]:
    locks, plan = (
        MemoryLockProvider(),
        {"often": {"task": "note", "schedule": timedelta(seconds=INTERVAL), "args": ("often",)}},
    )
    sent: list[str] = []
    found = [Beat(tmp_path / f"beat{number}", locks, sent, plan) for number in range(2)]
    found[0].sent = sent  # type: ignore[attr-defined]
    yield found
    for beat in found:
        beat.scheduler.close()


def test_an_interval_is_triggered_once_across_instances_and_goes_on_without_one(beats: list[Beat]) -> None:
    sent: list[str] = beats[0].sent  # type: ignore[attr-defined]
    began = time.monotonic()
    while len(sent) < 4:
        for beat in beats:
            beat.tick()
        time.sleep(0.01)
        assert time.monotonic() - began < 30
    # four triggers of one instance take three intervals, of two on their own half of that
    assert time.monotonic() - began > 2 * INTERVAL
    alone, count, began = beats[1], len(sent), time.monotonic()
    while len(sent) < count + 2:
        alone.tick()
        time.sleep(0.01)
        assert time.monotonic() - began < 30


def test_a_database_that_does_not_answer_sends_nothing(
    beats: list[Beat], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler: Any = beats[0].scheduler

    def silent(*_: Any, **__: Any) -> Any:
        raise BackendUnavailable("no answer")

    monkeypatch.setattr(scheduler._locks, "hold", silent)
    with caplog.at_level(logging.ERROR, "sqllocks"):
        scheduler.apply_entry(scheduler.schedule["often"])
    assert "beat did not send often" in caplog.text
    assert beats[0].sent == []  # type: ignore[attr-defined]


def entry(plan: Any, last: datetime) -> Any:
    return SimpleNamespace(schedule=plan, last_run_at=last)


def test_instances_with_other_pasts_name_a_cron_trigger_alike() -> None:
    now = datetime.now(UTC)
    planned = now.replace(second=0, microsecond=0)
    app = Celery("test", broker="memory://", set_as_current=False)
    plan = crontab(minute=str(planned.minute), hour=str(planned.hour), app=app)
    for last in (
        planned - timedelta(minutes=1),
        planned - timedelta(hours=20),
        planned - timedelta(seconds=7),
    ):
        moment, keep = planned_moment(entry(plan, last), datetime.now(UTC))
        assert moment == planned
        assert keep >= timedelta(minutes=1)


def test_an_interval_is_counted_from_the_epoch_and_kept_past_its_end() -> None:
    every = timedelta(minutes=10)
    moment, keep = planned_moment(entry(schedule(every), PAST), datetime(2030, 1, 1, 7, 19, 59, tzinfo=UTC))
    assert moment == datetime(2030, 1, 1, 7, 10, tzinfo=UTC)
    assert keep > every


PAST = datetime(2020, 1, 1, tzinfo=UTC)


def test_beat_says_what_is_missing(tmp_path: Path) -> None:
    app = Celery("test", broker="memory://", set_as_current=False)
    with pytest.raises(LookupError, match=r"app\.conf\.sqllocks"):
        LockedScheduler(app=app, schedule_filename=str(tmp_path / "beat"))
