"""One planned slot runs once across instances; a late repeat is refused by its row."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import sessionmaker
from sqlalchemy.pool import StaticPool

from sqllocks import AsyncMemoryLockProvider, LockNotAcquired, LockValidationError, MemoryLockProvider
from sqllocks.recipes.schedule import SlotDone, SlotRun, Slots, async_run_slot, run_slot
from tests.conformance.polling import until
from tests.recipes import delivering
from tests.recipes.tables import metadata, slots
from tests.scenarios.arena import SERVERS, Arena
from tests.scenarios.workers import at_once

PLANNED = datetime(2030, 1, 2, 3, 0, tzinfo=UTC)
KEY = "schedule:nightly:2030-01-02T03:00:00.000000Z"


@pytest.mark.parametrize("server", SERVERS)
def test_c081_one_of_several_instances_runs_the_slot(place: Arena, server: str) -> None:
    targets = place.targets(4)
    workers = place.workers(targets)
    answers = at_once(workers, delivering.trigger_at, targets, [PLANNED] * 4, remembered=True)
    runs = [answer for answer in answers if isinstance(answer, SlotRun)]
    refused = [answer for answer in answers if isinstance(answer, LockNotAcquired)]
    assert len(runs) == 1, answers
    assert len(refused) == 3, answers
    assert {error.code for error in refused} == {"LOCK_NOT_ACQUIRED"}
    assert runs[0].lock_key == KEY
    assert place.observer.rows("SELECT token FROM effects") == [(runs[0].fencing_token,)]
    assert place.client.locked(KEY) is False
    with pytest.raises(SlotDone):
        delivering.trigger_at(0, place.target(), PLANNED, remembered=True)
    assert len(place.observer.rows("SELECT * FROM effects")) == 1


@pytest.mark.parametrize("server", ["postgresql"])
def test_a_slot_whose_runner_was_killed_is_not_repeated(place: Arena, server: str) -> None:
    [worker] = place.workers([place.target()])
    with pytest.raises(AssertionError, match="ended in the middle"):
        worker.run(delivering.trigger_at, 0, place.target(), PLANNED, remembered=True, dies=True)
    until(lambda: not place.client.locked(KEY), within=5)
    with pytest.raises(SlotDone):
        delivering.trigger_at(0, place.target(), PLANNED, remembered=True)
    assert place.observer.rows("SELECT finished_at FROM schedule_slots") == [(None,)]


def test_c082_the_lock_alone_does_not_stop_a_late_repeat() -> None:
    locks, ran = MemoryLockProvider(), list[int]()
    for _ in range(2):
        run_slot(locks, "nightly", PLANNED, lambda lease: ran.append(lease.fencing_token))
    assert len(ran) == 2
    with locks.hold(KEY, ttl=5), pytest.raises(LockNotAcquired):
        run_slot(locks, "nightly", PLANNED, lambda: ran.append(0))
    run_slot(locks, "hourly", PLANNED, lambda: ran.append(1), ttl=5, at_least=5)
    with pytest.raises(LockNotAcquired):
        run_slot(locks, "hourly", PLANNED, lambda: ran.append(2))
    assert ran[2:] == [1]


def test_a_slot_that_failed_may_be_tried_again() -> None:
    engine = create_engine("sqlite://", poolclass=StaticPool)
    metadata.create_all(engine)
    rows = Slots(slots, sessionmaker(engine))
    locks = MemoryLockProvider()
    with pytest.raises(ZeroDivisionError):
        run_slot(locks, "nightly", PLANNED, lambda: 1 / 0, slots=rows)
    same = PLANNED.astimezone(timezone(timedelta(hours=5)))
    run = run_slot(locks, "nightly", same, lambda: "done", slots=rows)
    assert (run.lock_key, run.result, run.planned_at) == (KEY, "done", PLANNED)
    with pytest.raises(SlotDone):
        run_slot(locks, "nightly", PLANNED, lambda: "again", slots=rows)
    run_slot(locks, "nightly", PLANNED + timedelta(days=1), lambda: "next", slots=rows)
    engine.dispose()


def test_a_naive_moment_is_refused() -> None:
    with pytest.raises(LockValidationError):
        run_slot(MemoryLockProvider(), "nightly", PLANNED.replace(tzinfo=None), lambda: 1)


@pytest.mark.anyio
async def test_the_asyncio_form_returns_what_the_function_returned() -> None:
    async def work() -> str:
        return "done"

    async with AsyncMemoryLockProvider() as locks:
        run = await async_run_slot(locks, "nightly", PLANNED, work)
    assert (run.result, run.lock_key) == ("done", KEY)
