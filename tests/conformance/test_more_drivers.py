"""Drivers that share SQL and values with those of the suite: one walk through everything they carry."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, timedelta

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from sqllocks import (
    BackendUnavailable,
    LockNotAcquired,
    LockTimeout,
    SchemaMissing,
    SqlLockProvider,
    StaleFencingToken,
)
from tests.conformance.polling import until
from tests.servers import fresh_database, require_server, url_for

KEY = "job"
TTL = 30.0


@pytest.fixture(params=["psycopg2", "pg8000"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """Return the application's engine on a database of the test's own."""
    require_server("postgresql")
    with ExitStack() as stack:
        base = stack.enter_context(fresh_database("postgresql"))
        engine = create_engine(url_for(base, request.param))
        stack.callback(engine.dispose)
        yield engine


@pytest.fixture
def locks(engine: Engine) -> Iterator[SqlLockProvider]:
    """Return a provider on that database."""
    with SqlLockProvider(engine) as locks:
        locks.create_table()
        yield locks


def test_a_lease_from_grant_to_release(locks: SqlLockProvider) -> None:
    handle = locks.acquire(KEY, ttl=TTL)
    assert handle.acquired
    assert handle.expires_at.tzinfo is UTC
    assert locks.locked(KEY) is True
    refused = locks.acquire(KEY, ttl=TTL)
    assert (refused.acquired, refused.fencing_token) == (False, handle.fencing_token)
    later = locks.extend(KEY, owner_token=handle.owner_token, ttl=2 * TTL)
    assert later is not None
    assert later.expires_at - handle.expires_at > timedelta(seconds=TTL / 2)
    info = locks.inspect(KEY)
    assert info is not None
    assert (info.held, info.fencing_token, info.expires_at) == (True, handle.fencing_token, later.expires_at)
    assert locks.list_locks() == [info]
    assert locks.release(KEY, owner_token=handle.owner_token) is True
    assert locks.release(KEY, owner_token=handle.owner_token) is False
    assert locks.acquire(KEY, ttl=TTL).fencing_token > handle.fencing_token


def test_keys_of_any_text_and_many_at_once(locks: SqlLockProvider) -> None:
    keys = ["Job", "job", "job ", "100%", "a:b", "it's", 'say "so"', "\\", "锁😀"]
    handles = locks.acquire_many(keys, ttl=TTL)
    assert [handle.lock_key for handle in handles] == sorted(keys)
    assert all(handles)
    owner = handles[0].owner_token
    assert all(locks.extend_many(keys, owner_token=owner, ttl=TTL))
    assert locks.release_many(keys, owner_token=owner) == [True] * len(keys)
    assert locks.purge(idle=60) == 0


def test_a_block_is_renewed_waited_for_and_guards(engine: Engine, locks: SqlLockProvider) -> None:
    with locks.hold(KEY, ttl=3) as lease:
        first = lease.expires_at
        until(lambda: lease.expires_at > first)
        with pytest.raises(LockTimeout), locks.hold(KEY, ttl=TTL, wait=0.1):
            pass
        with Session(engine) as session, session.begin():
            lease.guard(session)
        release = threading.Timer(0.2, lease.release)
        release.start()
        with locks.hold(KEY, ttl=TTL, wait=20) as next_lease, engine.begin() as connection:
            next_lease.guard(connection)
            held = locks.acquire(KEY, ttl=TTL)
            assert held.fencing_token == next_lease.fencing_token
            with pytest.raises(StaleFencingToken):
                locks.guard(connection, replace(held, acquired=True, owner_token="x"))
        release.join()


def test_a_lock_that_lasts_as_long_as_a_transaction(engine: Engine, locks: SqlLockProvider) -> None:
    with Session(engine) as session, session.begin():
        locks.hold_for_transaction(session, KEY, ttl=TTL)
        session.execute(text("SELECT 1"))
        with pytest.raises(LockNotAcquired), locks.hold(KEY, ttl=TTL):
            pass
    assert locks.locked(KEY) is False


def test_what_the_database_says_is_understood(engine: Engine, locks: SqlLockProvider) -> None:
    with SqlLockProvider(engine, table="missing") as other, pytest.raises(SchemaMissing):
        other.acquire(KEY, ttl=TTL)
    held = locks.acquire(KEY, ttl=TTL)
    # a session that the server ended: the call is settled on a new one
    with engine.connect() as connection:
        ended = text(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        assert connection.execute(ended).all()
    try:
        refused = locks.acquire(KEY, ttl=TTL)
    except BackendUnavailable:
        refused = locks.acquire(KEY, ttl=TTL)
    assert (refused.acquired, refused.fencing_token) == (False, held.fencing_token)
    # a row that somebody has locked is asked for again, and never waited for
    with engine.begin() as connection:
        row = text("SELECT * FROM core_locks WHERE lock_key = :key FOR UPDATE")
        connection.execute(row, {"key": KEY})
        assert not locks.acquire(KEY, ttl=TTL)
    assert locks.release(KEY, owner_token=held.owner_token) is True


def test_a_server_that_is_not_there_is_unavailable(engine: Engine) -> None:
    url = engine.url.set(host="127.0.0.1", port=1)
    with SqlLockProvider(url) as locks, pytest.raises(BackendUnavailable, match="cannot connect") as caught:
        locks.acquire(KEY, ttl=TTL)
    assert not isinstance(caught.value, DBAPIError)
    assert "secret" not in str(caught.value)
