"""What a guard accepts, what it leaves alone, and what it says when it cannot answer."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import create_engine, literal, select
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from sqllocks import (
    BackendUnavailable,
    LockHandle,
    LockValidationError,
    SchemaMissing,
    StaleFencingToken,
)
from sqllocks.fencing import Guards, async_guard, guard
from tests.conformance.calls import TTL
from tests.conformance.subject import Subject
from tests.fencing.application import WAYS, Application, Transaction

IDLE = "SHOW idle_in_transaction_session_timeout"


def test_a_wrong_kind_is_told_what_to_pass(application: Application, subject: Subject) -> None:
    handle = subject.a.acquire(subject.key(), ttl=TTL)
    engine = application.engine()
    guards = application.guards
    if application.loop is None:
        calls: list[tuple[Any, str]] = [
            (engine, "Session or Connection"),
            (sessionmaker(engine), "Session or Connection"),  # type: ignore[arg-type]
            ("sqlite://", "Session or Connection"),
            (AsyncSession(), "async_guard"),
        ]
        for given, hint in calls:
            with pytest.raises(TypeError, match=hint) as caught:
                guards.guard(given, handle)
            assert type(given).__name__ in str(caught.value)
        return
    for given, hint in (
        (engine, "AsyncSession or AsyncConnection"),
        (async_sessionmaker(engine), "AsyncSession or AsyncConnection"),  # type: ignore[arg-type]
        (Session(), r"use guard\(\)"),
    ):
        with pytest.raises(TypeError, match=hint):
            application.loop.run(guards.async_guard(given, handle))


def test_scoped_sessions_are_sessions(application: Application, subject: Subject) -> None:
    handle = subject.a.acquire(subject.key(), ttl=TTL)
    engine: Any = application.engine()
    if application.loop is None:
        scoped = scoped_session(sessionmaker(engine))
        application.guards.guard(scoped, handle)
        scoped.remove()
        return

    async def scoped_and_asyncio() -> None:
        sessions = async_scoped_session(async_sessionmaker(engine), scopefunc=lambda: 1)
        await application.guards.async_guard(sessions, handle)
        await sessions.remove()

    application.loop.run(scoped_and_asyncio())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("how", ["engine", "options"])
def test_autocommit_is_refused(application: Application, subject: Subject, way: str, how: str) -> None:
    if how == "engine":
        engine = application.engine(isolation_level="AUTOCOMMIT")
        if not subject.kind.table:
            pytest.skip("nothing is sent that would tell")
    else:
        engine = application.engine().execution_options(isolation_level="AUTOCOMMIT")
    handle = subject.a.acquire(subject.key(), ttl=TTL)
    with (
        application.transaction(way, engine=engine) as transaction,
        pytest.raises(LockValidationError, match="autocommit"),
    ):
        transaction.guard(handle)
    assert application.pins.told == []


def test_a_handle_that_was_not_granted_is_refused(application: Application, subject: Subject) -> None:
    key = subject.key()
    subject.a.acquire(key, ttl=TTL)
    refused = subject.b.acquire(key, ttl=TTL)
    with application.transaction() as transaction, pytest.raises(LockValidationError, match="not granted"):
        transaction.guard(refused)


@pytest.mark.parametrize("at_most", [0, -1, float("nan"), float("inf"), True, "1", timedelta(0)])
def test_at_most_is_above_zero(application: Application, subject: Subject, at_most: Any) -> None:
    handle = subject.a.acquire(subject.key(), ttl=TTL)
    with application.transaction() as transaction:
        with pytest.raises(LockValidationError, match="at_most") as caught:
            transaction.guard(handle, at_most=at_most)
        assert caught.value.details == {"argument": "at_most"}


@pytest.mark.parametrize("at_most", [0.0001, 1, 2.5, timedelta(hours=1), 1e9])
def test_at_most_is_taken_everywhere(application: Application, subject: Subject, at_most: Any) -> None:
    handle = subject.a.acquire(subject.key(), ttl=TTL)
    with application.transaction() as transaction:
        if at_most == 0.0001 and subject.kind.server == "postgresql":
            return  # the server would end the session before the next word
        transaction.guard(handle, at_most=at_most)
        transaction.rollback()


def test_at_most_bounds_this_transaction_alone(application: Application, network_subject: Subject) -> None:
    if network_subject.kind.server != "postgresql":
        pytest.skip("the setting is PostgreSQL's")
    handle = network_subject.a.acquire(network_subject.key(), ttl=TTL)
    for present, at_most, within in (
        ("0", 7, "7s"),
        ("5s", 7, "5s"),
        ("90s", 7.5, "7500ms"),
        ("2h", timedelta(minutes=90), "90min"),
        ("250ms", 7, "250ms"),
        ("1d", 1e9, "1d"),
    ):
        engine = application.engine(f"SET idle_in_transaction_session_timeout = '{present}'")
        with application.transaction(engine=engine) as transaction:
            before = transaction.execute(IDLE).scalar_one()
            transaction.guard(handle, at_most=at_most)
            assert transaction.execute(IDLE).scalar_one() == within
            transaction.commit()
            assert transaction.execute(IDLE).scalar_one() == before


def test_the_callers_settings_stay(application: Application, network_subject: Subject) -> None:
    if network_subject.kind.server == "postgresql":
        settings = "SELECT name, setting FROM pg_settings ORDER BY name"
    else:
        settings = "SHOW SESSION VARIABLES"
    handle = network_subject.a.acquire(network_subject.key(), ttl=TTL)
    with application.transaction() as transaction:

        def seen() -> dict[str, str]:
            return {str(name): str(value) for name, value in transaction.execute(settings)}

        transaction.guard(handle)
        transaction.commit()
        before = seen()
        transaction.rollback()
        transaction.guard(handle)
        inside = seen()
        moving = {"timestamp", "statement_id", "pseudo_thread_id", "last_gtid", "gtid_executed"}
        moving |= {"rand_seed1", "rand_seed2", "in_transaction"}
        assert {name for name in before if before[name] != inside.get(name)} - moving == set()


def test_the_callers_time_zone_does_not_matter(application: Application, network_subject: Subject) -> None:
    zones = ("-11:00", "+13:00")
    for zone in zones:
        setting = (
            "SET TIME ZONE INTERVAL '{}' HOUR TO MINUTE"
            if network_subject.kind.server == "postgresql"
            else "SET time_zone = '{}'"
        )
        engine = application.engine(setting.format(zone))
        good = network_subject.a.acquire(network_subject.key(), ttl=2)
        over = network_subject.a.acquire(network_subject.key(), ttl=TTL)
        network_subject.expire(over.lock_key)
        with application.transaction(engine=engine) as transaction:
            transaction.guard(good)
            fenced = application.guards.fenced
            assert transaction.execute(select_one(fenced(good))).all()
            assert not transaction.execute(select_one(fenced(over))).all()
            with pytest.raises(StaleFencingToken, match="expired"):
                transaction.guard(over)


def select_one(condition: Any) -> Any:
    """Return a statement with a row where the condition holds."""
    return select(literal(1)).where(condition)


def test_namespaces_tables_and_schemas(application: Application, table_subject: Subject) -> None:
    client = table_subject.client(namespace="app:", table="other_locks")
    client.call("create_table")
    key = table_subject.key()
    handle = client.acquire(key, ttl=TTL)
    assert table_subject.observer.stored(f"app:{key}", table="other_locks") is not None
    guards = Guards(table="other_locks", namespace="app:", pins=application.pins)
    with application.transaction() as transaction:
        transaction.guard(handle, guards=guards)
        assert transaction.execute(select_one(guards.fenced(handle))).all()
        transaction.rollback()
        for told in application.pins.told:
            assert told[1] == f"app:{key}"
        with pytest.raises(StaleFencingToken, match=f"'{key}'"):
            transaction.guard(handle, guards=Guards(table="other_locks"))
        transaction.rollback()
        schema = {"sqlite": "main", "postgresql": "public"}.get(table_subject.kind.server)
        there = Guards(schema=schema or table_subject.url.database)
        second = table_subject.a.acquire(key, ttl=TTL)
        transaction.guard(second, guards=there)
        assert transaction.execute(select_one(there.fenced(second))).all()


def test_a_missing_table_is_named(application: Application, table_subject: Subject) -> None:
    handle = table_subject.a.acquire(table_subject.key(), ttl=TTL)
    with application.transaction() as transaction:
        with pytest.raises(SchemaMissing, match="no_locks") as caught:
            transaction.guard(handle, guards=Guards(table="no_locks"))
        assert caught.value.details == {"lock_key": handle.lock_key}


def test_no_answer_is_no_proof(application: Application, table_subject: Subject) -> None:
    handle = table_subject.a.acquire(table_subject.key(), ttl=TTL)
    if application.loop is None:
        session: Any = Session(create_engine(table_subject.unreachable))
    else:
        engine: Any = table_subject.engine(table_subject.unreachable)
        session = AsyncSession(engine)
    transaction = Transaction(session, application.guards, application.loop)
    with pytest.raises(BackendUnavailable) as caught:
        transaction.guard(handle)
    assert "secret" not in str(caught.value)
    transaction.close()


def test_a_killed_session_is_no_proof(application: Application, network_subject: Subject) -> None:
    server = network_subject.kind.server
    identify = "SELECT pg_backend_pid()" if server == "postgresql" else "SELECT connection_id()"
    handle = network_subject.a.acquire(network_subject.key(), ttl=TTL)
    with application.transaction("connection") as transaction:
        number = transaction.execute(identify).scalar_one()
        kill = f"SELECT pg_terminate_backend({number})" if server == "postgresql" else f"KILL {number}"
        network_subject.observer.rows(kill)
        with pytest.raises(BackendUnavailable) as caught:
            transaction.guard(handle)
        assert caught.value.__cause__ is not None


class BlockingTerm:
    """A held lock that guards by itself."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def guard(self, session_or_connection: Any, *, at_most: Any = None) -> None:
        self.calls.append((session_or_connection, at_most))


class AsyncTerm(BlockingTerm):
    """The same in the asyncio form."""

    async def guard(self, session_or_connection: Any, *, at_most: Any = None) -> None:  # type: ignore[override]
        self.calls.append((session_or_connection, at_most))


def test_the_functions_take_handles_and_held_locks(application: Application, table_subject: Subject) -> None:
    handle = table_subject.a.acquire(table_subject.key(), ttl=TTL)
    stale: LockHandle = table_subject.a.acquire(table_subject.key(), ttl=TTL)
    table_subject.expire(stale.lock_key)
    with application.transaction() as transaction:
        if application.loop is None:
            term = BlockingTerm()
            guard(transaction.source, handle, at_most=5)
            with pytest.raises(StaleFencingToken):
                guard(transaction.source, stale)
            guard(transaction.source, term, at_most=5)
            with pytest.raises(TypeError, match="async_guard"):
                guard(transaction.source, AsyncTerm())  # type: ignore[arg-type]
            assert term.calls == [(transaction.source, 5)]
            return
        run = application.loop.run
        async_term = AsyncTerm()
        run(async_guard(transaction.source, handle, at_most=5))
        with pytest.raises(StaleFencingToken):
            run(async_guard(transaction.source, stale))
        run(async_guard(transaction.source, async_term, at_most=5))
        with pytest.raises(TypeError, match=r"use guard\(\)"):
            run(async_guard(transaction.source, BlockingTerm()))  # type: ignore[arg-type]
        assert async_term.calls == [(transaction.source, 5)]
