"""E. The table: its shape, its creation, its absence, and how keys are told apart."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import make_url
from sqlalchemy.exc import ProgrammingError

from sqllocks import LockError, LockNotAcquired, SchemaMissing
from tests.conformance.calls import ALL, TTL
from tests.conformance.observing import COLUMNS, Observer
from tests.conformance.processes import ProcessPool, race
from tests.conformance.subject import Subject
from tests.servers import fresh_database

NAMES = ["Job", "job", "Job ", "锁😀"]


def test_c057_the_table_has_its_columns_and_no_index_but_the_key(table_subject: Subject) -> None:
    reflected = sqlalchemy.inspect(table_subject.observer.engine)
    assert {column["name"] for column in reflected.get_columns("core_locks")} == set(COLUMNS)
    assert reflected.get_pk_constraint("core_locks")["constrained_columns"] == ["lock_key"]
    assert reflected.get_indexes("core_locks") == []
    assert reflected.get_unique_constraints("core_locks") == []
    assert reflected.get_foreign_keys("core_locks") == []


def test_c057_another_table_name_is_used_alone(table_subject: Subject) -> None:
    client = table_subject.client(table="other_locks")
    client.call("create_table")
    key = table_subject.key()
    assert client.acquire(key, ttl=TTL).acquired is True
    assert table_subject.observer.stored(key, table="other_locks") is not None
    assert table_subject.observer.stored(key) is None
    assert table_subject.a.locked(key) is False


@pytest.mark.parametrize("namespace", ["", "space:"])
def test_c064_names_that_differ_are_different_locks(subject: Subject, namespace: str) -> None:
    client = subject.client(namespace=namespace) if subject.kind.table else subject.a
    tail = subject.key("")
    for held, asked in itertools.permutations(NAMES, 2):
        handle = client.acquire(held + tail, ttl=TTL)
        assert handle.acquired is True
        assert client.locked(asked + tail) is False
        assert client.release(asked + tail, owner_token=handle.owner_token) is False
        assert client.release(held + tail, owner_token=handle.owner_token) is True
    # the difference at the end of the key too
    handles = [client.acquire(tail + name, ttl=TTL) for name in NAMES]
    assert [handle.acquired for handle in handles] == [True] * 4
    assert [handle.lock_key for handle in handles] == [tail + name for name in NAMES]
    listed = client.list_locks(prefix=tail)
    assert sorted(info.lock_key for info in listed) == sorted(tail + name for name in NAMES)


def test_c064_owner_tokens_that_differ_are_different_owners(subject: Subject) -> None:
    for mine, other in itertools.permutations(NAMES, 2):
        key = subject.key()
        assert subject.a.acquire(key, ttl=TTL, owner_token=mine).acquired is True
        assert subject.b.release(key, owner_token=other) is False
        assert subject.b.extend(key, owner_token=other, ttl=TTL) is None
        assert subject.b.release(key, owner_token=mine) is True


def test_c066_creating_twice_is_harmless(table_subject: Subject) -> None:
    client = table_subject.client(table="made_twice")
    client.call("create_table")
    key = table_subject.key()
    handle = client.acquire(key, ttl=TTL)
    client.call("create_table")
    table_subject.client(table="made_twice").call("create_table")
    assert client.locked(key) is True
    assert client.release(key, owner_token=handle.owner_token) is True


def linger_in_create(observer: Observer) -> None:
    """Keep each CREATE TABLE open for a moment, so that those of other sessions meet it."""
    observer.rows(
        "CREATE FUNCTION linger() RETURNS event_trigger LANGUAGE plpgsql"
        " AS $$ BEGIN PERFORM pg_sleep(0.1); END $$"
    )
    observer.rows(
        "CREATE EVENT TRIGGER linger ON ddl_command_end"
        " WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION linger()"
    )


def test_c066_many_processes_may_create_at_once(table_subject: Subject, processes: ProcessPool) -> None:
    tables = ["core_locks", "second", "third"]
    others = processes.take(table_subject, 6)
    with fresh_database(table_subject.kind.server) as made:
        url = table_subject.kind.url(make_url(made))
        address = url.render_as_string(hide_password=False)
        observer = Observer(table_subject.kind, url)
        if table_subject.kind.server == "postgresql":
            with contextlib.suppress(ProgrammingError):  # needs a superuser
                linger_in_create(observer)
        form = table_subject.kind.asyncio
        outcomes = race(others, "create", tables=tables, address=address, asyncio_form=form)
        assert outcomes == [None] * 6
        for table in tables:
            client = table_subject.client(address, table=table)
            assert client.acquire("key", ttl=TTL).acquired is True
            assert observer.stored("key", table=table) is not None
            client.close()
        observer.close()


def test_a_missing_schema_is_named_where_the_table_is_to_be_made(table_subject: Subject) -> None:
    client = table_subject.client(schema="no_such_schema")
    with pytest.raises(SchemaMissing, match="the schema no_such_schema does not exist") as caught:
        client.call("create_table")
    assert "sqllocks init --url URL --schema no_such_schema`" in str(caught.value)
    assert "create_table()" not in str(caught.value)


@pytest.mark.parametrize("method", ALL)
def test_c067_a_missing_table_is_not_taken_for_busy(table_subject: Subject, method: str) -> None:
    client = table_subject.client(table="never_made")
    with pytest.raises(SchemaMissing) as caught:
        client.call(method, "key", **ALL[method])
    assert not isinstance(caught.value, LockNotAcquired)
    assert (caught.value.code, caught.value.status) == ("LOCK_SCHEMA_MISSING", 500)
    assert "sqllocks init" in str(caught.value)
    assert "never_made" in str(caught.value)
    assert "`sqllocks init --url URL --table never_made`" in str(caught.value)
    assert caught.value.__cause__ is not None


def test_c067_listing_a_missing_table_says_the_same(table_subject: Subject) -> None:
    client = table_subject.client(table="never_made")
    with pytest.raises(SchemaMissing):
        client.list_locks()


def test_c067_the_table_may_come_later(table_subject: Subject) -> None:
    client = table_subject.client(table="made_late")
    key = table_subject.key()
    with pytest.raises(SchemaMissing):
        client.acquire(key, ttl=TTL)
    client.call("create_table")
    assert client.acquire(key, ttl=TTL).acquired is True


@pytest.mark.parametrize("method", ALL)
def test_c067_a_table_of_somebody_else_is_a_library_error(table_subject: Subject, method: str) -> None:
    table_subject.observer.rows(
        "CREATE TABLE IF NOT EXISTS not_ours (lock_key VARCHAR(255) PRIMARY KEY, note VARCHAR(10))"
    )
    client = table_subject.client(table="not_ours")
    options: dict[str, Any] = ALL[method]
    with pytest.raises(LockError) as caught:
        client.call(method, "key", **options)
    assert not isinstance(caught.value, LockNotAcquired)
