"""The end of the application's outermost database transaction is seen, however it comes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from sqllocks.core.guard import Ending
from tests.conformance.calls import TTL
from tests.conformance.subject import Subject
from tests.fencing.application import WAYS, Application, Transaction

WRITE = "INSERT INTO accounts (name, balance) VALUES (:name, 1)"


class Ended(list[Ending]):
    """Collects how transactions ended."""

    def __call__(self, ending: Ending) -> None:
        self.append(ending)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("method", "ending"), [("commit", Ending.COMMITTED), ("rollback", Ending.ROLLED_BACK)]
)
def test_commit_and_rollback(
    application: Application, table_subject: Subject, way: str, method: str, ending: Ending
) -> None:
    ended = Ended()
    with application.transaction(way) as transaction:
        transaction.execute(WRITE, name=table_subject.key())
        assert transaction.when_ended(ended) is True
        assert ended == []
        transaction.do(method)
        assert ended == [ending]
        transaction.execute(WRITE, name=table_subject.key())
        transaction.do(method)
    assert ended == [ending], "the next transaction is another one"


@pytest.mark.parametrize("way", WAYS)
def test_close_without_commit(application: Application, table_subject: Subject, way: str) -> None:
    ended = Ended()
    with application.transaction(way) as transaction:
        transaction.execute(WRITE, name=table_subject.key())
        transaction.when_ended(ended)
        transaction.close()
        assert ended == [Ending.ROLLED_BACK]


def test_a_session_that_joined_an_outer_transaction(application: Application, table_subject: Subject) -> None:
    ended = Ended()
    with application.transaction("connection") as outer:
        outer.execute(WRITE, name=table_subject.key())
        bind: Any = outer.source
        for mode in ("rollback_only", "create_savepoint"):
            session = (
                AsyncSession(bind, join_transaction_mode=mode)
                if isinstance(bind, AsyncConnection)
                else Session(bind, join_transaction_mode=mode)
            )
            inner = Transaction(session, application.guards, application.loop)
            inner.execute(WRITE, name=table_subject.key())
            inner.when_ended(ended)
            inner.commit()
            assert ended == [], "the session's commit does not end the database transaction"
            inner.close()
        outer.commit()
    assert ended == [Ending.COMMITTED] * 2


def test_savepoints_are_not_the_end(application: Application, table_subject: Subject) -> None:
    ended = Ended()
    with application.transaction() as transaction:
        transaction.execute(WRITE, name=table_subject.key())
        for method in ("commit", "rollback"):
            savepoint = transaction.savepoint()
            transaction.execute(WRITE, name=table_subject.key())
            transaction.when_ended(ended, name=method)
            savepoint.do(method)
            assert ended == []
        transaction.commit()
    assert ended == [Ending.COMMITTED] * 2


def test_the_outermost_savepoint_of_sqlite_ends_the_transaction(
    application: Application, sqlite_subject: Subject
) -> None:
    # the driver sends BEGIN before a write, not before SAVEPOINT
    ended = Ended()
    with application.transaction() as transaction:
        savepoint = transaction.savepoint()
        transaction.execute(WRITE, name=sqlite_subject.key())
        transaction.when_ended(ended)
        savepoint.commit()
        assert ended == [Ending.COMMITTED]


def test_an_invalidated_connection(application: Application, table_subject: Subject) -> None:
    ended = Ended()
    with application.transaction("connection") as transaction:
        transaction.execute(WRITE, name=table_subject.key())
        transaction.when_ended(ended)
        transaction.do("invalidate")
        assert ended == [Ending.UNKNOWN]
        transaction.rollback()


def test_a_connection_that_the_server_closed(application: Application, network_subject: Subject) -> None:
    ended = Ended()
    server = network_subject.kind.server
    identify = "SELECT pg_backend_pid()" if server == "postgresql" else "SELECT connection_id()"
    with application.transaction("connection") as transaction:
        number = transaction.execute(identify).scalar_one()
        transaction.execute(WRITE, name=network_subject.key())
        transaction.when_ended(ended)
        kill = f"SELECT pg_terminate_backend({number})" if server == "postgresql" else f"KILL {number}"
        network_subject.observer.rows(kill)
        with pytest.raises(DBAPIError):
            transaction.commit()
    assert ended == [Ending.UNKNOWN]


def test_a_commit_that_the_server_refuses(application: Application, network_subject: Subject) -> None:
    if network_subject.kind.server != "postgresql":
        pytest.skip("no constraint waits for the commit there")
    network_subject.observer.rows(
        "CREATE TABLE IF NOT EXISTS unique_at_commit (n integer UNIQUE DEFERRABLE INITIALLY DEFERRED)"
    )
    ended = Ended()
    with application.transaction() as transaction:
        transaction.execute("INSERT INTO unique_at_commit VALUES (1), (1)")
        transaction.when_ended(ended)
        with pytest.raises(DBAPIError):
            transaction.commit()
        assert ended == [Ending.UNKNOWN]


def test_a_commit_that_sqlite_refuses_is_not_the_end(
    application: Application, sqlite_subject: Subject
) -> None:
    ended = Ended()
    engine = application.engine(connect_args={"timeout": 0.05})
    with application.transaction("connection", engine=engine) as transaction:
        transaction.execute(WRITE, name=sqlite_subject.key())
        transaction.when_ended(ended)
        with sqlite_subject.observer.engine.connect() as reader:
            reader.exec_driver_sql("BEGIN")
            rows = reader.exec_driver_sql("SELECT * FROM accounts")
            rows.fetchone()
            with pytest.raises(DBAPIError, match="locked"):
                transaction.commit()
            assert ended == [], "the file is still locked by the transaction"
            rows.close()
            reader.exec_driver_sql("ROLLBACK")
        transaction.rollback()
        transaction.close()
    assert ended == [Ending.ROLLED_BACK]


@pytest.mark.parametrize("prepared", [False, True], ids=["direct", "prepared"])
@pytest.mark.parametrize("method", ["commit", "rollback"])
def test_two_phases(application: Application, network_subject: Subject, prepared: bool, method: str) -> None:
    if network_subject.kind.server == "postgresql":
        (setting,) = network_subject.observer.rows("SHOW max_prepared_transactions")[0]
        if prepared and int(setting) == 0:
            pytest.skip("the server takes no prepared transactions")
    if network_subject.kind.driver == "asyncpg" or application.loop is not None:
        pytest.skip("AsyncConnection has no begin_twophase")
    ended = Ended()
    with application.transaction("connection") as transaction:
        both = transaction.source.begin_twophase()
        transaction.execute(WRITE, name=network_subject.key())
        transaction.when_ended(ended)
        if prepared:
            both.prepare()
            assert ended == []
        if method == "commit" and not prepared and network_subject.kind.server != "postgresql":
            both.prepare()  # XA COMMIT wants it, or ONE PHASE
        getattr(both, method)()
        assert ended == [Ending.COMMITTED if method == "commit" else Ending.ROLLED_BACK]


def test_it_is_called_when_the_locks_are_gone_and_before_commit_returns(
    application: Application, table_subject: Subject
) -> None:
    outcomes: list[bool] = []
    key = table_subject.key()
    with application.transaction() as transaction:
        handle = table_subject.a.acquire(key, ttl=TTL)
        table_subject.expire(key)
        transaction.execute(
            "UPDATE core_locks SET holder = holder WHERE lock_key = :key"
            if table_subject.kind.server == "sqlite"
            else "SELECT 1 FROM core_locks WHERE lock_key = :key FOR UPDATE",
            key=key,
        )
        assert handle.acquired is True

        def take(_: Ending) -> None:
            # another thread: an asyncio application's loop is busy with its commit
            pool = table_subject.a._threads
            outcomes.append(bool(pool.submit(_taken, table_subject, key).result(10)))

        transaction.when_ended(take)
        assert outcomes == []
        transaction.commit()
        assert outcomes == [True]


def _taken(subject: Subject, key: str) -> bool:
    """Change the row as a contender's statement would, without waiting."""
    skip = "" if subject.kind.server == "sqlite" else " FOR UPDATE SKIP LOCKED"
    with subject.observer.engine.connect() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE" if subject.kind.server == "sqlite" else "BEGIN")
        found = connection.execute(
            text(f"SELECT 1 FROM core_locks WHERE lock_key = :key{skip}"), {"key": key}
        )
        free = bool(found.all())
        connection.exec_driver_sql("ROLLBACK")
        return free


def test_a_callback_that_raises_is_logged(
    application: Application, table_subject: Subject, caplog: pytest.LogCaptureFixture
) -> None:
    ended = Ended()

    def broken(_: Ending) -> None:
        raise RuntimeError("oops")

    name = table_subject.key()
    with application.transaction() as transaction, caplog.at_level(logging.ERROR, "sqllocks"):
        transaction.execute(WRITE, name=name)
        transaction.when_ended(broken)
        transaction.when_ended(ended)
        transaction.commit()
    assert ended == [Ending.COMMITTED]
    assert application.balance(name) == 1
    assert "oops" in caplog.text


def test_a_name_is_registered_once(application: Application, table_subject: Subject) -> None:
    ended = Ended()
    with application.transaction() as transaction:
        transaction.execute(WRITE, name=table_subject.key())
        callbacks: list[Callable[[Ending], None]] = [ended, ended.append]
        assert [transaction.when_ended(each, name="once") for each in callbacks] == [True, False]
        assert transaction.when_ended(ended) is True
        assert transaction.when_ended(ended) is True, "without a name each one counts"
        transaction.rollback()
        assert len(ended) == 3
        transaction.execute(WRITE, name=table_subject.key())
        assert transaction.when_ended(callbacks[0], name="once") is True
        transaction.rollback()
    assert len(ended) == 4


def test_no_transaction_no_end(application: Application, table_subject: Subject) -> None:
    with (
        application.transaction("connection") as transaction,
        pytest.raises(ValueError, match="no transaction"),
    ):
        transaction.when_ended(lambda _: None)


def test_engines_share_nothing(application: Application, table_subject: Subject) -> None:
    ended, others = Ended(), Ended()
    server = table_subject.kind.server
    with application.transaction("connection") as first:
        first.execute("SELECT 1") if server == "sqlite" else first.execute(WRITE, name=table_subject.key())
        first.when_ended(ended)
        with application.transaction("connection") as second:
            second.execute("SELECT 1") if server == "sqlite" else second.execute(
                WRITE, name=table_subject.key()
            )
            second.when_ended(others)
            second.commit()
        assert (ended, others) == ([], [Ending.COMMITTED])
