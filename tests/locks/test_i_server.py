"""I. Session locks: what the server's own behaviour decides, on one driver of each server.

The asyncio form stands on PostgreSQL and MariaDB, the blocking one on MySQL; what a case needs of the form
was shown by ``test_i_locks`` on all of them.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.pool import QueuePool

from sqllocks import BackendUnavailable, LeaseLost, LockTimeout
from sqllocks.dialects.base import Statement, Want
from sqllocks.runtime.blocking import drive
from tests.conformance.polling import Stopwatch, until
from tests.conformance.subject import on_connect
from tests.locks.processes import worker
from tests.locks.subject import QUICK, LockSubject


def session_of(locker: Any) -> Any:
    """Return the library's own session object of a locker."""
    return locker._sessions[0]


def test_c102_a_session_whose_unlock_failed_is_closed_for_real(server_subject: LockSubject) -> None:
    subject = server_subject
    locker = subject.locker(**QUICK)
    key, other = subject.key("failing"), subject.key("other")
    lock, beside = (subject.do(locker.try_lock(each)) for each in (key, other))
    carrier = subject.carrier(key)
    sql = session_of(locker)._sql
    broken = Statement("unlock", text("SELECT (SELECT 1 UNION SELECT 2)"))
    sql.unlock, sql.release = broken, broken
    with pytest.raises(BackendUnavailable):
        subject.do(lock.unlock())
    # the server has ended it, and with it the locks that nobody knew the state of
    until(lambda: subject.carrier(key) is None and subject.carrier(other) is None, what="its end")
    until(lambda: beside.lost, what="the loss of the other one")
    assert carrier is not None
    after = subject.do(subject.two.lock(other, wait=10))
    assert subject.do(after.unlock()) is True


def test_c103_a_lock_that_the_server_did_not_know_is_told_as_lost(server_subject: LockSubject) -> None:
    subject = server_subject
    locker = subject.locker()
    lock = subject.do(locker.try_lock(subject.key()))
    release_all(subject, locker)
    assert subject.do(lock.unlock()) is False


def test_c103_a_lock_that_the_server_let_go_is_found_by_the_heartbeat(server_subject: LockSubject) -> None:
    subject = server_subject
    locker = subject.locker(**QUICK)
    lost, kept = (subject.do(locker.try_lock(subject.key(label))) for label in "ab")
    release_all(subject, locker, only=lost.key)
    until(lambda: lost.lost, within=5, what="the heartbeat")
    assert subject.do(kept.held()) is True
    assert subject.do(kept.unlock()) is True


def release_all(subject: LockSubject, locker: Any, *, only: str = "") -> None:
    """Let go of server-side locks behind the library's back, on its own session."""

    async def work(session: Any) -> None:
        if not only:
            call = (
                "pg_advisory_unlock_all()" if subject.kind.server == "postgresql" else "RELEASE_ALL_LOCKS()"
            )
            await session.query(Statement("all", text(f"SELECT {call}")), {})
            return
        wants = locker._seat.carrier._named(session, [Want(only, "")])
        await session.query(session.sql.unlock, session.sql.named(wants))

    use(subject, locker, work)


def use(subject: LockSubject, locker: Any, work: Any) -> Any:
    """Do ``work`` on the session of a locker."""
    return subject.do(use_beside(subject, session_of(locker), work))


def test_c104_a_killed_process_frees_its_locks_at_once(server_subject: LockSubject) -> None:
    subject = server_subject
    key = subject.key()
    process = worker(subject)
    token = process.ask("try_lock", key=key)
    assert subject.do(subject.two.try_lock(key)) is None
    waiter = subject.start(lambda: subject.two.lock(key, wait=20))
    process.kill()
    watch = Stopwatch()
    lock = waiter.result(20)
    assert watch.seconds < 5  # the lease is 15 s
    assert lock.fencing_token > token
    assert subject.do(lock.unlock()) is True


def test_c109_an_answer_of_null_is_an_error_and_never_busy(server_subject: LockSubject) -> None:
    subject = server_subject
    locker = subject.locker()
    key = subject.key()
    subject.do(locker.inspect(key))
    sql = session_of(locker)._sql
    good = sql.take
    names = (
        "unnest(CAST(:names AS bigint[])) AS n"
        if subject.kind.server == "postgresql"
        else "JSON_TABLE(:batch, '$[*]' COLUMNS (n VARCHAR(192) PATH '$.n')) AS j"
    )
    sql.take = Statement("take", text(f"SELECT n, NULL FROM {names}"))
    with pytest.raises(BackendUnavailable, match="NULL"):
        subject.do(locker.try_lock(key))
    with pytest.raises(BackendUnavailable, match="NULL"):
        subject.do(locker.lock(key, wait=0.1))
    sql.take = good
    lock = subject.do(locker.try_lock(key))  # nothing was left behind
    assert subject.do(lock.unlock()) is True


def test_c110_an_exhausted_pool_of_the_application_does_not_matter(form_subject: LockSubject) -> None:
    subject = form_subject
    options: dict[str, Any] = {} if subject.kind.asyncio else {"poolclass": QueuePool}
    engine: Any = subject.engine(pool_size=1, max_overflow=0, pool_timeout=0.5, **options)
    locker = subject.locker(engine)
    connection = subject.run(opened(engine)) if subject.kind.asyncio else engine.connect()
    try:
        lock = subject.do(locker.try_lock(subject.key()))
        assert subject.do(lock.unlock()) is True
    finally:
        subject.do(connection.close())


async def opened(engine: Any) -> Any:
    return await engine.connect()


def test_c113_timeouts_of_the_server_do_not_surface(server_subject: LockSubject) -> None:
    subject = server_subject
    settings = {
        "postgresql": ("SET lock_timeout = 1", "SET statement_timeout = 50"),
        "mysql": ("SET lock_wait_timeout = 1", "SET innodb_lock_wait_timeout = 1"),
        "mariadb": ("SET lock_wait_timeout = 0", "SET innodb_lock_wait_timeout = 0"),
    }[subject.kind.server]
    engine = subject.engine()
    on_connect(engine, *settings)
    locker = subject.locker(engine)
    key = subject.key()
    lock = subject.do(subject.one.try_lock(key))
    with pytest.raises(LockTimeout):
        subject.do(locker.lock(key, wait=0.5))
    waiter = subject.start(lambda: locker.lock(key, wait=20))
    assert subject.do(lock.unlock()) is True
    assert subject.do(waiter.result(20).unlock()) is True


def test_a_cancelled_try_at_the_server_leaves_no_lock(postgresql_subject: LockSubject) -> None:
    subject = postgresql_subject
    locker = subject.locker()
    key = subject.key()
    subject.do(locker.inspect(key))
    sql = session_of(locker)._sql
    good = sql.take
    # granted, and then the statement is cancelled, as statement_timeout may do
    ended = "SELECT pg_advisory_lock(n), pg_cancel_backend(pg_backend_pid()), pg_sleep(5) FROM unnest"
    sql.take = Statement("take", text(f"{ended}(CAST(:names AS bigint[])) AS n").columns())
    with pytest.raises(BackendUnavailable):
        subject.do(locker.try_lock(key))
    sql.take = good
    assert subject.carrier(key) is None
    lock = subject.do(subject.two.try_lock(key))
    assert subject.do(lock.unlock()) is True


def test_the_session_is_told_to_end_after_the_lease(server_subject: LockSubject) -> None:
    subject = server_subject
    locker = subject.locker(lease=4.5, heartbeat=1)
    lock = subject.do(locker.try_lock(subject.key()))
    assert session_of(locker).unset == {}
    name, value = (
        ("idle_session_timeout", "4500ms") if subject.kind.server == "postgresql" else ("wait_timeout", "4")
    )
    show = f"SHOW {name}" if subject.kind.server == "postgresql" else f"SELECT @@SESSION.{name}"
    answers = []

    async def ask(session: Any) -> None:
        answers.append((await session.query(Statement("show", text(show)), {})).rows[0][0])

    use(subject, locker, ask)
    assert str(answers[0]) == value
    assert subject.do(lock.unlock()) is True


def test_a_holder_that_says_nothing_is_ended_by_the_server(
    server_subject: LockSubject,
) -> None:
    subject = server_subject
    locker = subject.locker(lease=2, heartbeat=0.5)
    key = subject.key()
    lock = subject.do(locker.try_lock(key))
    locker._seat.holding.keeper._look = lambda now: ([], now + 3600)  # its keeper sleeps
    waiter = subject.start(lambda: subject.two.lock(key, wait=20))
    watch = Stopwatch()
    after = waiter.result(20)
    assert 1 < watch.seconds < 6
    assert lock.lost
    with pytest.raises(LeaseLost):
        lock.check()
    assert after.fencing_token > lock.fencing_token
    assert subject.do(after.unlock()) is True


def test_more_locks_than_allowed_are_refused_with_the_reason(server_subject: LockSubject) -> None:
    subject = server_subject
    locker = subject.locker(max_session_locks=2)
    locks = [subject.do(locker.try_lock(subject.key(str(number)))) for number in range(2)]
    key = subject.key("third")
    with pytest.raises(BackendUnavailable, match="max_session_locks") as caught:
        subject.do(locker.try_lock(key))
    assert caught.value.details["max_session_locks"] == 2
    assert subject.carrier(key) is None
    assert subject.do(locks.pop().unlock()) is True
    third = subject.do(locker.try_lock(key))
    assert all(subject.do(lock.unlock()) for lock in [*locks, third])


def test_a_limit_holds_by_itself_where_a_full_lock_table_would_refuse_connections(
    postgresql_subject: LockSubject,
) -> None:
    subject = postgresql_subject
    subject.do(subject.one.inspect("any"))
    server = session_of(subject.one).server
    room = subject.observer.rows(
        "SELECT current_setting('max_locks_per_transaction')::int * (current_setting('max_connections')::int"
        " + current_setting('max_prepared_transactions')::int)"
    )[0][0]
    assert server.most_locks == room // 4


def test_several_sessions_share_the_keys(server_subject: LockSubject) -> None:
    subject = server_subject
    locker = subject.locker(sessions=3, **QUICK)
    # so many that one of three sessions is left without any once in 60,000 runs
    locks = [subject.do(locker.try_lock(subject.key(str(number)))) for number in range(30)]
    carriers = {lock.key: subject.carrier(lock.key) for lock in locks}
    assert len(set(carriers.values())) == 3
    gone = carriers[locks[0].key]
    assert gone is not None
    subject.kill(gone)
    for lock in locks:
        if carriers[lock.key] == gone:
            until(lambda lock=lock: lock.lost, within=5, what="the loss")  # type: ignore[misc]
        else:
            assert subject.do(lock.held()) is True
        assert subject.do(lock.unlock()) is (carriers[lock.key] != gone)


def test_a_session_that_dies_under_one_caller_does_not_strand_the_next(server_subject: LockSubject) -> None:
    subject = server_subject
    locker = subject.locker()
    lock = subject.do(locker.try_lock(subject.key("first")))
    carrier = subject.carrier(lock.key)
    assert carrier is not None
    keys = [subject.key(str(number)) for number in range(6)]
    slow = "pg_sleep(0.5)" if subject.kind.server == "postgresql" else "SLEEP(0.5)"
    began = threading.Event()

    async def hang(session: Any) -> None:
        began.set()
        await session.query(Statement("slow", text(f"SELECT {slow}")), {})

    session = session_of(locker)
    hanging = subject.start(lambda: use_beside(subject, session, hang))
    assert began.wait(10)
    callers = [subject.start(lambda key=key: locker.lock(key, wait=20)) for key in keys]  # type: ignore[misc]
    subject.kill(carrier)
    assert hanging.exception(20) is not None
    locks = [caller.result(20) for caller in callers]
    until(lambda: lock.lost, what="the loss of the first")
    for each in locks:
        assert subject.do(each.held()) is True, each.key
        assert subject.do(each.unlock()) is True
    for key in keys:
        assert subject.carrier(key) is None, "left behind"


def use_beside(subject: LockSubject, session: Any, work: Any) -> Any:
    return session.use(work) if subject.kind.asyncio else drive(session.use(work))
