"""I. Guards by session locks and terms, also in transactions that outlive the lease."""

from __future__ import annotations

import time
from typing import Any

import pytest

from sqllocks import LeaseLost, async_guard, guard
from tests.conformance.polling import until
from tests.locks.subject import LockSubject

SHORT: dict[str, Any] = {"lease": 3, "heartbeat": 0.4}


class Writing:
    """A transaction of the application that is guarded by a lock."""

    def __init__(self, subject: LockSubject) -> None:
        self._subject = subject
        engine: Any = subject.engine()
        self._connection: Any = engine.connect()
        if subject.kind.asyncio:
            subject.run(self._open())

    async def _open(self) -> None:
        await self._connection.start()

    def guard(self, lock: Any) -> None:
        """Guard by the function, as for any lock."""
        call: Any = async_guard if self._subject.kind.asyncio else guard
        self._subject.do(call(self._connection, lock))

    def commit(self) -> None:
        self._subject.do(self._connection.commit())

    def close(self) -> None:
        self._subject.do(self._connection.close())


def test_a_guard_keeps_the_key_from_everybody_and_the_lock_goes_on(form_subject: LockSubject) -> None:
    subject = form_subject
    locker = subject.locker()
    key = subject.key()
    lock = subject.do(locker.try_lock(key))
    writing = Writing(subject)
    try:
        writing.guard(lock)
        assert subject.do(lock.held()) is True
        session = subject.carrier(key)
        assert session is not None
        subject.kill(session)
        until(lambda: lock.lost, within=5, what="the loss")
        # its lock is free at the server, but its row is pinned by the transaction that it guards
        assert subject.do(subject.two.try_lock(key)) is None
        writing.commit()
    finally:
        writing.close()
    after = subject.do(subject.two.lock(key, wait=10))
    assert subject.do(after.unlock()) is True


def test_c148_a_lock_goes_on_after_a_guarded_transaction_longer_than_its_lease(
    server_subject: LockSubject,
) -> None:
    subject = server_subject
    locker = subject.locker(**SHORT)
    guarded, beside = (subject.do(locker.try_lock(subject.key(each))) for each in "ab")
    writing = Writing(subject)
    try:
        writing.guard(guarded)
        granted = subject.stored(guarded.key).expires_at
        end = time.monotonic() + 1.5 * SHORT["lease"]
        # the session is alive all the time: heartbeats go on although the row is pinned
        until(lambda: time.monotonic() > end or guarded.lost or beside.lost, within=20)
        assert not guarded.lost
        assert not beside.lost
        assert subject.carrier(guarded.key) is not None
        assert subject.do(subject.two.try_lock(guarded.key)) is None
        writing.commit()
    finally:
        writing.close()
    assert subject.do(guarded.held()) is True
    assert subject.stored(guarded.key).expires_at > granted
    assert subject.do(guarded.unlock()) is True
    assert subject.do(beside.unlock()) is True


def test_c149_an_unlock_inside_its_guarded_transaction_answers_at_once(server_subject: LockSubject) -> None:
    subject = server_subject
    locker = subject.locker()
    key = subject.key()
    lock = subject.do(locker.try_lock(key))
    writing = Writing(subject)
    try:
        writing.guard(lock)
        assert subject.do(lock.unlock()) is True
        assert subject.do(subject.two.try_lock(key)) is None
        writing.commit()
    finally:
        writing.close()
    after = subject.do(subject.two.lock(key, wait=10))
    assert subject.do(after.unlock()) is True


def test_a_lost_lock_guards_nothing(subject: LockSubject) -> None:
    key = subject.key()
    lock = subject.do(subject.one.try_lock(key))
    assert subject.do(lock.unlock()) is True
    with pytest.raises(LeaseLost):
        subject.do(lock.guard(object()))
