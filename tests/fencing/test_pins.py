"""Who is told that a guard stops a lease's own renewals, and when that is over."""

from __future__ import annotations

import gc

import pytest

from sqllocks import LockHandle, StaleFencingToken
from sqllocks.core.guard import Ending
from sqllocks.fencing import Guards, async_guard, guard
from sqllocks.runtime.everyone import EVERYONE
from tests.conformance.calls import TTL
from tests.conformance.subject import Subject
from tests.fencing.application import WAYS, Application, RecordedPins

STOPPING = {"mysql", "mariadb", "sqlite"}


def pinned(handle: LockHandle) -> tuple[object, ...]:
    return ("pinned", handle.lock_key, handle.owner_token, handle.fencing_token)


def unpinned(handle: LockHandle, ending: Ending) -> tuple[object, ...]:
    return ("unpinned", handle.lock_key, handle.owner_token, handle.fencing_token, ending)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("method", "ending"), [("commit", Ending.COMMITTED), ("rollback", Ending.ROLLED_BACK)]
)
def test_a_guard_pins_once_until_its_transaction_ends(
    application: Application, table_subject: Subject, way: str, method: str, ending: Ending
) -> None:
    handle = table_subject.a.acquire(table_subject.key(), ttl=TTL)
    told = application.pins.told
    with application.transaction(way) as transaction:
        transaction.guard(handle)
        transaction.guard(handle)
        if table_subject.kind.server not in STOPPING:
            transaction.do(method)
            assert told == []
            return
        assert told == [pinned(handle)]
        transaction.do(method)
        assert told == [pinned(handle), unpinned(handle, ending)]
        transaction.guard(handle)
        transaction.do(method)
        assert told == [pinned(handle), unpinned(handle, ending)] * 2


def test_a_guard_that_proves_nothing_pins_nothing(application: Application, table_subject: Subject) -> None:
    handle = table_subject.a.acquire(table_subject.key(), ttl=TTL)
    table_subject.a.break_lock(handle.lock_key)
    with application.transaction() as transaction, pytest.raises(StaleFencingToken):
        transaction.guard(handle)
    assert application.pins.told == []


def test_two_transactions_pin_one_lease(application: Application, mysql_subject: Subject) -> None:
    handle = mysql_subject.a.acquire(mysql_subject.key(), ttl=TTL)
    told = application.pins.told
    with application.transaction() as first, application.transaction() as second:
        first.guard(handle)
        second.guard(handle)
        first.commit()
        assert told == [pinned(handle), pinned(handle), unpinned(handle, Ending.COMMITTED)]
        assert mysql_subject.b.acquire(handle.lock_key, ttl=TTL).acquired is False
        second.rollback()
    assert told[-1] == unpinned(handle, Ending.ROLLED_BACK)


def test_a_savepoint_that_is_rolled_back_keeps_the_pin(
    application: Application, mysql_subject: Subject
) -> None:
    handle = mysql_subject.a.acquire(mysql_subject.key(), ttl=TTL)
    with application.transaction() as transaction:
        savepoint = transaction.savepoint()
        transaction.guard(handle)
        savepoint.rollback()
        assert application.pins.told == [pinned(handle)]
        transaction.commit()
    assert application.pins.told == [pinned(handle), unpinned(handle, Ending.COMMITTED)]


def test_the_row_is_free_when_unpinned_is_called(application: Application, mysql_subject: Subject) -> None:
    handle = mysql_subject.a.acquire(mysql_subject.key(), ttl=TTL)
    free: list[bool] = []

    class Looking(RecordedPins):
        def unpinned(self, key: str, owner: str, token: int, ending: Ending) -> None:
            statement = "SELECT 1 FROM core_locks WHERE lock_key = :key FOR UPDATE SKIP LOCKED"
            pool = mysql_subject.a._threads
            free.append(bool(pool.submit(mysql_subject.observer.rows, statement, key=key).result(10)))

    pins = Looking()
    with application.transaction() as transaction:
        transaction.guard(handle, guards=Guards(pins=pins))
        transaction.commit()
        assert free == [True]


def test_the_functions_tell_every_provider(application: Application, mysql_subject: Subject) -> None:
    handle = mysql_subject.a.acquire(mysql_subject.key(), ttl=TTL)
    pins, gone = RecordedPins(), RecordedPins()
    EVERYONE.join(pins)
    EVERYONE.join(gone)
    told = gone.told
    del gone
    gc.collect()
    with application.transaction() as transaction:
        if application.loop is None:
            guard(transaction.source, handle)
        else:
            application.loop.run(async_guard(transaction.source, handle))
        assert pins.told == [pinned(handle)]
        transaction.commit()
    assert pins.told == [pinned(handle), unpinned(handle, Ending.COMMITTED)]
    assert told == []
