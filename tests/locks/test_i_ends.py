"""I. How session locks end: loss in the body of a block, shutdown, fork, and objects that nobody has.

The asyncio body and the shutdown are cases of the form and run on memory and one driver for each form of
each server; the fork runs in processes of their own.
"""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from sqllocks import AsyncSqlLocker, BackendUnsupported, LeaseLost, LockValidationError, SqlLocker
from tests.conformance.polling import Stopwatch, until
from tests.locks.processes import worker
from tests.locks.subject import QUICK, LockSubject


def locker_that_loses(subject: LockSubject) -> tuple[Any, Any]:
    """Return a locker, and a function that ends the session of a key of it."""
    locker = subject.locker(**QUICK)

    def lose(key: str) -> None:
        session = subject.carrier(key)
        assert session is not None
        subject.kill(session)

    return locker, lose


def test_a_loss_cancels_the_asyncio_body_and_the_block_raises(asyncio_subject: LockSubject) -> None:
    subject = asyncio_subject
    locker, lose = locker_that_loses(subject)
    key = subject.key()
    cancelled = []

    async def body() -> None:
        async with await locker.lock(key):
            asyncio.get_running_loop().run_in_executor(None, lose, key)
            try:
                await asyncio.sleep(20)
            except asyncio.CancelledError:
                cancelled.append(True)
                raise

    async def outer() -> int:
        with pytest.raises(LeaseLost, match="session"):
            await body()
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    assert subject.run(outer()) == 0
    assert cancelled == [True]


def test_a_cancel_from_outside_stays_one_although_the_lock_is_lost(asyncio_subject: LockSubject) -> None:
    subject = asyncio_subject
    locker, lose = locker_that_loses(subject)
    key = subject.key()

    async def body() -> None:
        async with await locker.lock(key) as lock:
            lock.on_lost(asyncio.current_task().cancel)  # type: ignore[union-attr]
            asyncio.get_running_loop().run_in_executor(None, lose, key)
            await asyncio.sleep(20)

    async def outer() -> None:
        task = asyncio.ensure_future(body())
        with pytest.raises(asyncio.CancelledError):
            await task

    subject.run(outer())


def test_the_bodys_own_exception_wins(form_subject: LockSubject) -> None:
    subject = form_subject
    locker, lose = locker_that_loses(subject)
    key = subject.key()

    async def asyncio_body() -> None:
        async with await locker.lock(key):
            try:
                await asyncio.get_running_loop().run_in_executor(None, lose, key)
                await asyncio.sleep(20)
            except asyncio.CancelledError:
                raise ZeroDivisionError from None

    def blocking_body() -> None:
        with locker.lock(key) as lock:
            lose(key)
            until(lambda: lock.lost, what="the loss")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        subject.do(asyncio_body() if subject.kind.asyncio else blocking_body())  # type: ignore[func-returns-value]
    assert any(key in note for note in caught.value.__notes__)


def test_a_block_whose_lock_was_lost_raises_at_its_end(blocking_subject: LockSubject) -> None:
    subject = blocking_subject
    locker, lose = locker_that_loses(subject)
    key = subject.key()
    lock = locker.lock(key)
    with pytest.raises(LeaseLost, match="session"), lock:
        lose(key)
        until(lambda: lock.lost, what="the loss")
    with pytest.raises(LeaseLost), lock:
        pytest.fail("a lost lock was entered")


def test_close_gives_back_and_tells_the_body(subject: LockSubject) -> None:
    locker = subject.locker()
    key = subject.key()
    lock = subject.do(locker.try_lock(key))
    told: list[str] = []
    lock.on_lost(lambda: told.append(key))
    watch = Stopwatch()
    subject.close(locker, timeout=0.3)
    assert 0.3 <= watch.seconds < 5
    assert lock.lost
    assert told == [key]
    with pytest.raises(LeaseLost, match="closed"):
        lock.check()
    assert subject.do(lock.unlock()) is False
    if subject.kind.table:
        # released, not left to its lease: a lock with another name gets it too
        leases = subject.leases()
        handle = subject.do(leases.acquire(key, ttl=30))
        assert handle.acquired
        assert subject.do(leases.release(key, owner_token=handle.owner_token))
        assert subject.carrier(key) is None


def test_close_waits_for_bodies_and_the_locker_can_be_used_again(subject: LockSubject) -> None:
    locker = subject.locker()
    key = subject.key()
    lock = subject.do(locker.try_lock(key))
    closing = subject.start(lambda: locker.aclose(20) if subject.kind.asyncio else locker.close(20))
    assert subject.do(lock.held()) is True
    assert not closing.done()
    assert subject.do(lock.unlock()) is True
    closing.result(10)
    again = subject.do(locker.try_lock(key))
    assert subject.do(again.unlock()) is True


def test_close_leaves_an_engine_of_the_application_alone(form_subject: LockSubject) -> None:
    subject = form_subject
    engine: Any = subject.engine()
    locker = subject.locker(engine)
    before = subject.observer.sessions()
    lock = subject.do(locker.try_lock(subject.key()))
    assert subject.observer.sessions() > before
    assert subject.do(lock.unlock()) is True
    subject.close(locker)
    until(lambda: subject.observer.sessions() <= before, within=10, what="the end of its session")

    async def ask() -> Any:
        async with engine.connect() as connection:
            return (await connection.exec_driver_sql("SELECT 1")).scalar()

    if subject.kind.asyncio:
        assert subject.run(ask()) == 1
    else:
        with engine.connect() as connection:
            assert connection.exec_driver_sql("SELECT 1").scalar() == 1


def test_a_lock_that_nobody_has_any_more_is_given_back_with_a_warning(server_subject: LockSubject) -> None:
    subject = server_subject
    locker = subject.locker()
    key = subject.key()

    def drop() -> None:
        subject.do(locker.try_lock(key))
        gc.collect()

    with pytest.warns(ResourceWarning, match=key):
        drop()
    lock = subject.do(subject.two.lock(key, wait=10))
    assert subject.do(lock.unlock()) is True


def test_a_forked_child_frees_nothing_and_has_no_lock(blocking_subject: LockSubject) -> None:
    subject = blocking_subject
    key, other = subject.key("parent"), subject.key("child")
    process = worker(subject, **QUICK)
    try:
        assert process.ask("try_lock", key=key) is not None
        session = subject.carrier(key)
        assert process.ask("fork", key=key, other=other) == "ok"
        assert subject.carrier(key) == session
        assert subject.carrier(other) is None
        before = subject.stored(key).expires_at
        until(lambda: subject.stored(key).expires_at > before, within=5, what="the parent's heartbeat")
        assert process.ask("held", key=key) is True
        assert subject.do(subject.two.try_lock(key)) is None
        assert process.ask("unlock", key=key) is True
    finally:
        process.close()


def test_an_asyncio_locker_belongs_to_the_loop_of_its_first_use(asyncio_subject: LockSubject) -> None:
    subject = asyncio_subject
    with pytest.raises(LockValidationError, match="loop"):
        subject.do(subject.one.inspect("first use"))
        asyncio.run(subject.one.try_lock(subject.key()))


def test_sqlite_has_no_session_locks_and_the_error_says_what_to_do(sqlite_subject: LockSubject) -> None:
    form: Any = AsyncSqlLocker if sqlite_subject.kind.asyncio else SqlLocker
    with pytest.raises(BackendUnsupported, match="SqlLockProvider") as caught:
        form(sqlite_subject.address)
    assert "strategy='lease'" in str(caught.value)
    assert "MemoryLocker" in str(caught.value)


WRONG: list[dict[str, Any]] = [
    {"lease": 10, "heartbeat": 5},
    {"lease": 0},
    {"lease": float("nan")},
    {"lease": "15"},
    {"heartbeat": 0},
    {"heartbeat": -1},
    {"naming": "md5"},
    {"prefix": 7},
    {"prefix": "\0"},
    {"pooler": "transaction"},
    {"sessions": 0},
    {"sessions": 1.5},
    {"sessions": True},
    {"max_session_locks": 0},
    {"namespace": " "},
    {"holder": ""},
]


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_a_wrong_argument_is_told_before_any_sql(wrong: dict[str, Any]) -> None:
    with pytest.raises(LockValidationError):
        SqlLocker("postgresql+psycopg://nobody@127.0.0.1:1/none", **wrong)


@pytest.mark.parametrize("wrong", ["", " ", "k" * 256, "a\0b", "\ud800", 7, None], ids=repr)
def test_a_wrong_key_or_wait_is_told_before_any_sql(subject: LockSubject, wrong: Any) -> None:
    with pytest.raises(LockValidationError):
        subject.do(subject.one.try_lock(wrong))
    with pytest.raises(LockValidationError):
        subject.do(subject.one.lock(wrong))
    for wait in (-1, float("nan"), "5", True):
        with pytest.raises(LockValidationError, match="wait"):
            subject.do(subject.one.lock(subject.key(), wait=wait))
