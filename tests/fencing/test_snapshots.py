"""Guards in transactions that read from a snapshot, or that another transaction stands in the way of."""

from __future__ import annotations

import sqlite3
import time
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.ext.asyncio import AsyncEngine

from sqllocks import (
    BackendUnavailable,
    LockError,
    LockHandle,
    LockValidationError,
    SqlLockProvider,
    StaleFencingToken,
    TransactionConflict,
)
from sqllocks.fencing import Guards
from tests.conformance.calls import TTL
from tests.conformance.polling import until
from tests.conformance.subject import Subject
from tests.fencing.application import LEVELS, Application

LOOK = "SELECT count(*) FROM accounts"
# where the plain reads of a transaction go on showing what was there at the first
SNAPSHOTS = {
    "postgresql": {"REPEATABLE READ", "SERIALIZABLE"},
    "mysql": {"REPEATABLE READ"},  # SERIALIZABLE reads the present rows, and locks them
    "mariadb": {"REPEATABLE READ"},
}


def test_a_snapshot_older_than_the_grant_is_a_conflict(
    application: Application, network_subject: Subject
) -> None:
    server = network_subject.kind.server
    for level in LEVELS[server]:
        for used in (False, True):
            key = network_subject.key()
            if used:
                network_subject.a.acquire(key, ttl=TTL)
                network_subject.a.break_lock(key)
            with application.transaction(isolation_level=level) as transaction:
                transaction.execute(LOOK)
                handle = network_subject.a.acquire(key, ttl=TTL)
                if level not in SNAPSHOTS[server]:
                    transaction.guard(handle)
                    continue
                with pytest.raises(TransactionConflict, match="first in it, or use READ COMMITTED") as caught:
                    transaction.guard(handle)
                assert caught.value.retryable is False, (level, used)
                assert caught.value.details == {"lock_key": key}
                # the same transaction once more, with the guard first
                transaction.rollback()
                transaction.guard(handle)


def test_a_takeover_since_the_snapshot_is_refused(application: Application, network_subject: Subject) -> None:
    for level in LEVELS[network_subject.kind.server]:
        handle = network_subject.a.acquire(network_subject.key(), ttl=TTL)
        with application.transaction(isolation_level=level) as transaction:
            transaction.execute(LOOK)
            network_subject.expire(handle.lock_key)
            assert network_subject.b.acquire(handle.lock_key, ttl=TTL).acquired is True
            with pytest.raises(LockError) as caught:
                transaction.guard(handle)
            error = caught.value
            if isinstance(error, TransactionConflict):
                assert network_subject.kind.server == "postgresql"
                assert level != "READ COMMITTED"
                assert error.retryable is False
            else:
                assert isinstance(error, StaleFencingToken)


def test_own_renewals_since_the_snapshot_do_no_harm(
    application: Application, network_subject: Subject
) -> None:
    # at all levels at the same time, so that their leases expire together
    with ExitStack() as stack:
        renewed = []
        for level in LEVELS[network_subject.kind.server]:
            handle = network_subject.a.acquire(network_subject.key(), ttl=2)
            transaction = stack.enter_context(application.transaction(isolation_level=level))
            transaction.execute(LOOK)
            owner = handle.owner_token
            assert network_subject.a.extend(handle.lock_key, owner_token=owner, ttl=TTL) is not None
            renewed.append((handle, transaction))
        for handle, transaction in renewed:
            until(lambda moment=handle.expires_at: network_subject.now() > moment, what="the old expiry")  # type: ignore[misc]
            transaction.guard(handle)
            assert network_subject.b.acquire(handle.lock_key, ttl=TTL).acquired is False


def test_a_guard_that_comes_first_shows_data_of_the_former_holder(
    application: Application, network_subject: Subject
) -> None:
    # what a holder committed under guard is seen by the next one, at every level
    for level in LEVELS[network_subject.kind.server]:
        name = application.account(network_subject.key())
        for count in range(3):
            handle = network_subject.a.acquire(name, ttl=TTL)
            with application.transaction(isolation_level=level) as transaction:
                transaction.guard(handle)
                found = transaction.execute("SELECT balance FROM accounts WHERE name = :name", name=name)
                assert found.scalar_one() == count
                transaction.execute(
                    "UPDATE accounts SET balance = :b WHERE name = :name", b=count + 1, name=name
                )
                transaction.commit()
            network_subject.a.release(name, owner_token=handle.owner_token)


def test_mariadb_that_refuses_changed_rows(application: Application, mysql_subject: Subject) -> None:
    if mysql_subject.kind.server != "mariadb":
        pytest.skip("innodb_snapshot_isolation is MariaDB's")
    engine = application.engine(
        "SET SESSION innodb_snapshot_isolation = ON", isolation_level="REPEATABLE READ"
    )
    handle = mysql_subject.a.acquire(mysql_subject.key(), ttl=TTL)
    with application.transaction(engine=engine) as transaction:
        transaction.execute(LOOK)
        mysql_subject.a.extend(handle.lock_key, owner_token=handle.owner_token, ttl=TTL)
        with pytest.raises(TransactionConflict) as caught:
            transaction.guard(handle)
        assert caught.value.retryable is False
        transaction.rollback()
        transaction.guard(handle)


def impatient(application: Application, server: str) -> Engine | AsyncEngine:
    """Return an engine whose transactions do not wait long for a lock."""
    if server == "sqlite":
        return application.engine(connect_args={"timeout": 0.1})
    if server == "postgresql":
        return application.engine("SET lock_timeout = '100ms'")
    return application.engine("SET innodb_lock_wait_timeout = 1")


def test_a_row_that_stays_locked_is_a_conflict(application: Application, table_subject: Subject) -> None:
    handle = table_subject.a.acquire(table_subject.key(), ttl=TTL)
    engine = impatient(application, table_subject.kind.server)
    with (
        application.transaction(engine=engine) as transaction,
        table_subject.observer.holding(handle.lock_key) as foreign,
    ):
        with pytest.raises(TransactionConflict) as caught:
            transaction.guard(handle)
        assert caught.value.retryable is True
        assert caught.value.__cause__ is not None
        foreign.end()
        transaction.rollback()
        transaction.guard(handle)


def test_a_guard_waits_for_a_takeover_in_flight(application: Application, network_subject: Subject) -> None:
    handle = network_subject.a.acquire(network_subject.key(), ttl=TTL)
    observer = network_subject.observer
    engine = application.engine(isolation_level="READ COMMITTED")
    with application.transaction(engine=engine) as transaction, observer.engine.connect() as other:
        transaction.execute(LOOK)
        other.exec_driver_sql("BEGIN")
        key = f"'{handle.lock_key}'"
        other.exec_driver_sql(f"SELECT 1 FROM core_locks WHERE lock_key = {key} FOR UPDATE")
        change = "UPDATE core_locks SET owner_token = 'other', fencing_token = fencing_token + 1"
        other.exec_driver_sql(f"{change} WHERE lock_key = {key}")
        guarding = network_subject.a._threads.submit(transaction.guard, handle)
        until(lambda: waiting(network_subject), what="the guard waits")
        assert not guarding.done()
        other.exec_driver_sql("COMMIT")
        assert isinstance(guarding.exception(10), StaleFencingToken)


def waiting(subject: Subject) -> int:
    """Return how many sessions of this database wait for a row."""
    if subject.kind.server == "postgresql":
        counted = (
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
    else:
        time.sleep(0.11)  # the table is not made anew for those who read it more often than that
        counted = (
            "SELECT count(*) FROM information_schema.innodb_trx t JOIN information_schema.processlist p"
            " ON p.id = t.trx_mysql_thread_id WHERE p.db = database() AND t.trx_state = 'LOCK WAIT'"
        )
    return int(subject.observer.rows(counted)[0][0])


def test_a_deadlock_is_a_conflict(application: Application, network_subject: Subject) -> None:
    observer = network_subject.observer
    handle = network_subject.a.acquire(network_subject.key(), ttl=TTL)
    name = application.account(network_subject.key())
    with application.transaction() as transaction, observer.engine.connect() as other:
        transaction.execute("SELECT 1 FROM accounts WHERE name = :name FOR UPDATE", name=name)
        other.exec_driver_sql("BEGIN")
        other.exec_driver_sql(f"SELECT 1 FROM core_locks WHERE lock_key = '{handle.lock_key}' FOR UPDATE")
        for number in range(5):  # InnoDB gives up the one that has changed less
            other.exec_driver_sql(f"INSERT INTO accounts (name, balance) VALUES ('{name}{number}', 0)")
        guarding = network_subject.a._threads.submit(transaction.guard, handle)
        until(lambda: waiting(network_subject), what="the guard waits")
        # on PostgreSQL, who waited for a second first looks for a deadlock: the guard
        other.exec_driver_sql(f"UPDATE accounts SET balance = 5 WHERE name = '{name}'")
        error = guarding.exception(10)
        assert isinstance(error, TransactionConflict), error
        assert error.retryable is True
        other.exec_driver_sql("ROLLBACK")


def test_a_transaction_that_failed_before_is_a_conflict(
    application: Application, network_subject: Subject
) -> None:
    if network_subject.kind.server != "postgresql":
        pytest.skip("others go on after a failed statement")
    handle: LockHandle = network_subject.a.acquire(network_subject.key(), ttl=TTL)
    with application.transaction("connection") as transaction:
        with pytest.raises(Exception, match="no_such_table"):
            transaction.execute("SELECT 1 FROM no_such_table")
        with pytest.raises(TransactionConflict) as caught:
            transaction.guard(handle)
        assert caught.value.retryable is True


def test_sqlite_that_has_read_an_older_file(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/locks.db"
    engine = create_engine(address, connect_args={"timeout": 0.1, "isolation_level": None})
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    with SqlLockProvider(address) as provider:
        provider.create_table()
        handle = provider.acquire("k", ttl=TTL)
        with closing(sqlite3.connect(tmp_path / "locks.db")) as direct:
            direct.execute("PRAGMA journal_mode = WAL")
        with engine.connect() as connection:
            connection.exec_driver_sql("SELECT * FROM core_locks").all()
            assert provider.acquire("other", ttl=TTL).acquired is True
            with pytest.raises(TransactionConflict) as caught:
                Guards().guard(connection, handle)
            assert caught.value.retryable is True
            connection.rollback()
            Guards().guard(connection, handle)
            with pytest.raises(BackendUnavailable):
                provider.acquire("another", ttl=TTL)
    engine.dispose()


def test_sqlite_without_a_transaction_is_refused(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/locks.db"
    engine = create_engine(address, connect_args={"isolation_level": None})
    with SqlLockProvider(address) as provider:
        provider.create_table()
        handle = provider.acquire("k", ttl=TTL)
        with engine.connect() as connection, pytest.raises(LockValidationError, match="autocommit"):
            Guards().guard(connection, handle)
    engine.dispose()
