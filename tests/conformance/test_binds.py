"""What a provider may be bound to, and who closes what."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest
from sqlalchemy import create_engine, event, pool
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

from sqllocks import (
    AsyncSqlElector,
    AsyncSqlLockProvider,
    BackendUnsupported,
    LockValidationError,
    SqlElector,
    SqlLocker,
    SqlLockProvider,
)
from tests.conformance.calls import TTL
from tests.conformance.polling import until
from tests.conformance.subject import Subject

FORMS = [SqlLockProvider, AsyncSqlLockProvider]
FILE = "/nonexistent/locks.db"


class Base(DeclarativeBase):
    pass


class Note(Base):
    __tablename__ = "note"
    id: Mapped[int] = mapped_column(primary_key=True)


def test_engine_sessionmaker_and_url_lead_to_the_same_locks(table_subject: Subject) -> None:
    engine = table_subject.engine()
    binds = [engine, table_subject.sessionmaker(engine), table_subject.address]
    clients = [table_subject.client(bind) for bind in binds]
    for holder in clients:
        key = table_subject.key()
        handle = holder.acquire(key, ttl=TTL)
        assert handle.acquired is True
        assert [client.locked(key) for client in clients] == [True] * 3
        assert [client.acquire(key, ttl=TTL).acquired for client in clients] == [False] * 3
        assert holder.release(key, owner_token=handle.owner_token) is True
        assert [client.locked(key) for client in clients] == [False] * 3


def test_a_sessionmaker_may_be_bound_later_by_its_settings(table_subject: Subject) -> None:
    factory = table_subject.sessionmaker(table_subject.engine())
    factory.configure(expire_on_commit=False)
    assert table_subject.client(factory).acquire(table_subject.key(), ttl=TTL).acquired is True


@pytest.mark.parametrize("name", ["NullPool", "StaticPool", "AssertionPool", "one", "SingletonThreadPool"])
def test_every_pool_of_the_application_will_do(table_subject: Subject, name: str) -> None:
    if name == "one":
        engine = table_subject.engine(pool_size=1, max_overflow=0)
    elif name == "SingletonThreadPool" and table_subject.kind.asyncio:
        engine = table_subject.engine(poolclass=pool.AsyncAdaptedQueuePool)
    else:
        engine = table_subject.engine(poolclass=getattr(pool, name))
    client = table_subject.client(engine)
    keys = [table_subject.key() for _ in range(8)]
    calls = [client.start("acquire", key, ttl=TTL) for key in keys]
    for key, call in zip(keys, calls, strict=True):
        assert client.release(key, owner_token=call.result(20).owner_token) is True


def test_an_engine_with_its_own_way_to_connect_is_used_with_it(blocking_table_subject: Subject) -> None:
    subject = blocking_table_subject
    plain = create_engine(subject.url)
    arguments, options = plain.dialect.create_connect_args(subject.url)
    made: list[object] = []

    def creator() -> Any:
        made.append(plain.dialect.loaded_dbapi.connect(*arguments, **options))
        return made[-1]

    unusable = subject.url.set(database="/nonexistent" if subject.kind.server == "sqlite" else "nonexistent")
    client = subject.client(subject.engine(unusable, creator=creator))
    key = subject.key()
    assert client.acquire(key, ttl=TTL).acquired is True
    assert subject.b.locked(key) is True
    assert made


def test_options_of_an_engine_do_not_matter(table_subject: Subject) -> None:
    engine = table_subject.engine().execution_options(isolation_level="SERIALIZABLE")
    key = table_subject.key()
    assert table_subject.client(engine).acquire(key, ttl=TTL).acquired is True
    assert table_subject.b.locked(key) is True


def test_mariadb_may_be_called_mysql_in_the_url(mysql_subject: Subject) -> None:
    url = mysql_subject.url.set(drivername=f"mysql+{mysql_subject.kind.driver}")
    client = mysql_subject.client(url.render_as_string(hide_password=False))
    key = mysql_subject.key()
    assert client.acquire(key, ttl=TTL).acquired is True
    assert mysql_subject.b.acquire(key, ttl=TTL).acquired is False


def test_a_bind_that_was_passed_in_is_not_disposed(table_subject: Subject) -> None:
    engine = table_subject.engine(pool_size=1, max_overflow=0)
    closed: list[object] = []
    theirs = (engine.sync_engine if isinstance(engine, AsyncEngine) else engine).pool
    event.listen(theirs, "close", lambda *arguments: closed.append(arguments))
    factory = table_subject.sessionmaker(engine)
    with table_subject.transaction(factory) as transaction:
        transaction.execute("SELECT 1")
    client = table_subject.client(engine)
    client.acquire(table_subject.key(), ttl=TTL)
    mine = len(closed)
    client.close()
    assert (engine.sync_engine if isinstance(engine, AsyncEngine) else engine).pool is theirs
    assert theirs.checkedin() == 1  # type: ignore[attr-defined]
    with table_subject.transaction(factory) as transaction:
        transaction.execute("SELECT 1")
    assert mine == 0


def test_close_ends_every_session_of_the_provider(network_subject: Subject) -> None:
    observer = network_subject.observer
    engine = network_subject.engine()
    for bind in (network_subject.address, engine):
        before = observer.sessions()
        client = network_subject.client(bind)
        calls = [client.start("acquire", network_subject.key(), ttl=TTL) for _ in range(8)]
        assert all(call.result(20).acquired for call in calls)
        assert before < observer.sessions() <= before + 2, "more than two lease connections"
        client.close()
        until(lambda before=before: observer.sessions() <= before, what="the sessions to end")  # type: ignore[misc]


def test_close_may_be_called_twice(subject: Subject) -> None:
    client = subject.client()
    client.acquire(subject.key(), ttl=TTL)
    client.close()
    client.close()


def test_the_context_manager_closes(network_subject: Subject) -> None:
    observer = network_subject.observer
    before = observer.sessions()
    key = network_subject.key()
    provider = network_subject.provider()
    if network_subject.kind.asyncio:

        async def use() -> bool:
            async with provider as entered:
                assert entered is provider
                return bool(await entered.acquire(key, ttl=TTL))

        assert network_subject.run(use()) is True
    else:
        with provider as entered:
            assert entered is provider
            assert entered.acquire(key, ttl=TTL).acquired is True
    until(lambda: observer.sessions() <= before, what="the sessions to end")
    assert network_subject.b.locked(key) is True


def test_a_key_of_a_bind_is_not_looked_up_when_the_provider_is_made(table_subject: Subject) -> None:
    client = table_subject.client(table_subject.unreachable)
    assert client.provider is not None


@pytest.mark.parametrize("form", FORMS)
def test_a_bind_of_the_other_form_names_the_class_to_use(form: type) -> None:
    blocking = create_engine(f"sqlite+pysqlite:///{FILE}")
    asyncio = create_async_engine(f"sqlite+aiosqlite:///{FILE}")
    wrong: list[Any]
    if form is SqlLockProvider:
        wrong, right = [asyncio, async_sessionmaker(asyncio)], "AsyncSqlLockProvider"
    else:
        wrong, right = [blocking, sessionmaker(blocking)], "SqlLockProvider"
    for bind in wrong:
        with pytest.raises(TypeError) as caught:
            form(bind)
        assert re.search(rf"\b{right}\b", str(caught.value)), str(caught.value)


@pytest.mark.parametrize("form", [SqlElector, AsyncSqlElector])
def test_an_elector_is_called_by_its_own_name(form: Any) -> None:
    engines = {SqlElector: create_async_engine(f"sqlite+aiosqlite:///{FILE}")}
    with pytest.raises(TypeError, match=rf"^{form.__name__} cannot be bound to .*\b\w*SqlElector\b"):
        form(engines.get(form) or create_engine(f"sqlite:///{FILE}"))


@pytest.mark.parametrize(
    ("form", "remedy"),
    [
        (SqlLockProvider, "MemoryLockProvider or create_provider"),
        (AsyncSqlLockProvider, "AsyncMemoryLockProvider or create_async_provider"),
        (SqlLocker, "MemoryLocker or create_locker"),
        (AsyncSqlElector, "AsyncMemoryElector or create_async_elector"),
    ],
)
def test_the_address_of_memory_names_who_takes_it(form: Any, remedy: str) -> None:
    with pytest.raises(BackendUnsupported, match=f"use {remedy}$"):
        form("memory://")


@pytest.mark.parametrize(
    ("driver", "module", "package"),
    [
        ("postgresql+psycopg2", "psycopg2", "psycopg2-binary, or leave the driver out of the URL (psycopg)"),
        ("postgresql+pg8000", "pg8000", "pg8000, or leave the driver out of the URL (psycopg)"),
        ("mysql+mysqldb", "MySQLdb", "mysqlclient, or leave the driver out of the URL (pymysql)"),
        ("mariadb+asyncmy", "asyncmy", "asyncmy, or leave the driver out of the URL (aiomysql)"),
        ("postgresql+psycopg", "psycopg", "'sqllocks[postgresql]'"),
        ("mariadb+pymysql", "pymysql", "'sqllocks[mysql]'"),
        ("sqlite+aiosqlite", "aiosqlite", "'sqllocks[sqlite]'"),
    ],
)
def test_a_missing_driver_names_the_package_that_has_it(
    driver: str, module: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # None makes the import fail as it does where the package is not installed
    monkeypatch.setitem(sys.modules, module, None)
    form: Any = AsyncSqlLockProvider if module in {"asyncmy", "aiosqlite"} else SqlLockProvider
    with pytest.raises(BackendUnsupported) as caught:
        form(f"{driver}://host/db")
    assert str(caught.value).endswith(f"is not installed: pip install {package}")
    assert repr(module) in str(caught.value)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "bind",
    [None, 7, b"sqlite://", object(), [], {}, Note, sessionmaker],
    ids=lambda bind: type(bind).__name__,
)
def test_what_is_no_bind_is_a_type_error(form: Any, bind: object) -> None:
    with pytest.raises(TypeError) as caught:
        form(bind)
    assert "ngine" in str(caught.value)


def test_a_session_and_a_connection_are_no_binds(sqlite_subject: Subject) -> None:
    engine = create_engine(sqlite_subject.url.set(drivername="sqlite+pysqlite"))
    with engine.connect() as connection, Session(engine) as session:
        for bind in (connection, session):
            for form in FORMS:
                with pytest.raises(TypeError):
                    form(bind)
    engine.dispose()


def outcome(factory: Any, form: Any) -> LockValidationError:
    """Return the validation error for a session factory."""
    with pytest.raises(LockValidationError, match="ngine") as caught:
        form(factory)
    assert caught.value.code == "VALIDATION_ERROR"
    return caught.value


def test_a_sessionmaker_without_one_engine_is_refused(sqlite_subject: Subject) -> None:
    engine = create_engine(sqlite_subject.url.set(drivername="sqlite+pysqlite"))
    outcome(sessionmaker(), SqlLockProvider)
    outcome(sessionmaker(binds={Note: engine}), SqlLockProvider)
    outcome(sessionmaker(engine, binds={Note: engine}), SqlLockProvider)
    with engine.connect() as connection:
        outcome(sessionmaker(connection), SqlLockProvider)
    engine.dispose()


def test_an_async_sessionmaker_without_one_engine_is_refused(sqlite_subject: Subject) -> None:
    engine = create_async_engine(sqlite_subject.url.set(drivername="sqlite+aiosqlite"))
    outcome(async_sessionmaker(), AsyncSqlLockProvider)
    outcome(async_sessionmaker(binds={Note: engine}), AsyncSqlLockProvider)
    outcome(async_sessionmaker(engine, binds={Note: engine}), AsyncSqlLockProvider)

    async def connected() -> None:
        async with engine.connect() as connection:
            outcome(async_sessionmaker(connection), AsyncSqlLockProvider)
        await engine.dispose()

    sqlite_subject.run(connected())
