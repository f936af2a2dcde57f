"""Addresses: unknown databases, missing drivers, and passwords that must not be shown."""

from __future__ import annotations

import re
from typing import Any

import pytest
from sqlalchemy import URL, create_engine

from sqllocks import AsyncSqlLockProvider, BackendUnsupported, LockError, LockValidationError, SqlLockProvider
from tests.conformance.calls import TTL
from tests.conformance.subject import Subject

FORMS = [SqlLockProvider, AsyncSqlLockProvider]


def failure(form: Any, address: str) -> LockError:
    """Return the library's error for an address, whenever it is raised."""
    with pytest.raises(LockError) as caught:
        provider = form(address)
        if form is SqlLockProvider:
            provider.acquire("key", ttl=TTL)
    return caught.value


@pytest.mark.parametrize("form", FORMS)
def test_a_url_of_an_unknown_database_names_the_known_ones(form: Any) -> None:
    for scheme in ("oracle", "mssql+pyodbc", "redis", "nonsense"):
        error = failure(form, f"{scheme}://user:p%40ss-word@127.0.0.1/db")
        assert "postgresql" in str(error).lower()
        assert "sqlite" in str(error).lower()
        assert "p%40ss-word" not in repr(error)
        assert "p@ss-word" not in repr(error)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scheme", ["postgresql+psycopg2cffi", "mysql+mysqlconnector", "mysql+cymysql"])
def test_a_url_of_a_missing_driver_names_a_remedy(form: Any, scheme: str) -> None:
    error = failure(form, f"{scheme}://user:p%40ss-word@127.0.0.1/db")
    assert re.search(r"pip install|psycopg|asyncpg|pymysql|aiomysql", str(error))
    assert "p%40ss-word" not in repr(error)
    assert "p@ss-word" not in repr(error)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "address",
    [
        "no address",
        "",
        "://",
        "postgresql+psycopg://user:p%40ss-word@host:port/db",
        "postgresql+psycopg//user:p%40ss-word@host/db",
    ],
)
def test_a_text_that_is_no_url_is_refused_without_its_password(form: Any, address: str) -> None:
    with pytest.raises(LockValidationError) as caught:
        form(address)
    seen: BaseException | None = caught.value
    while seen is not None:
        assert "ss-word" not in f"{seen!r} {seen}"
        seen = seen.__cause__


@pytest.mark.parametrize(
    "address", ["sqlite://", "sqlite:///:memory:", "sqlite+pysqlite:///file::memory:?uri=true"]
)
def test_sqlite_in_memory_is_unsupported_and_the_remedy_named(address: str) -> None:
    error = failure(SqlLockProvider, address)
    assert isinstance(error, BackendUnsupported)
    assert "MemoryLockProvider" in str(error)
    engine = create_engine("sqlite://")
    with pytest.raises(BackendUnsupported, match="MemoryLockProvider"):
        SqlLockProvider(engine).acquire("key", ttl=TTL)
    engine.dispose()


def test_a_password_with_reserved_characters_works(network_subject: Subject) -> None:
    observer, password = network_subject.observer, "p@ss:w/rd#1?&=+ %"
    name = network_subject.key("role").replace(":", "_")[:30]
    quoted = password.replace("'", "''")
    database = network_subject.url.database
    if network_subject.kind.server == "postgresql":
        with observer.engine.connect() as connection:
            connection.exec_driver_sql(f"CREATE ROLE {name} LOGIN PASSWORD '{quoted.replace('%', '%%')}'")
            connection.exec_driver_sql(f"GRANT ALL ON core_locks TO {name}")
    else:
        with observer.engine.connect() as connection:
            connection.exec_driver_sql(f"CREATE USER {name} IDENTIFIED BY '{quoted.replace('%', '%%')}'")
            connection.exec_driver_sql(f"GRANT ALL ON `{database}`.* TO {name}")
    url = network_subject.url.set(username=name, password=password)
    client = network_subject.client(url.render_as_string(hide_password=False))
    key = network_subject.key()
    try:
        assert client.acquire(key, ttl=TTL).acquired is True
        assert network_subject.b.locked(key) is True
        assert password not in repr(client.provider)
    finally:
        client.close()
        forget(network_subject, name)


def forget(subject: Subject, name: str) -> None:
    """Remove the account of a case."""
    with subject.observer.engine.connect() as connection:
        if subject.kind.server == "postgresql":
            connection.exec_driver_sql(f"DROP OWNED BY {name}")
            connection.exec_driver_sql(f"DROP ROLE {name}")
        else:
            connection.exec_driver_sql(f"DROP USER {name}")


def test_a_wrong_password_is_a_library_error_that_does_not_show_it(network_subject: Subject) -> None:
    url: URL = network_subject.url.set(username="nobody-there", password="p@ss:w/rd#1")
    client = network_subject.client(url.render_as_string(hide_password=False))
    with pytest.raises(LockError) as caught:
        client.acquire("key", ttl=TTL)
    assert "p@ss:w/rd#1" not in repr(caught.value)
    assert "p%40ss" not in repr(caught.value)
