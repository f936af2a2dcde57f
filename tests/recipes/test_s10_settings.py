"""S10. What the library does leaves the settings of the application's connections as they were."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker
from sqlalchemy.orm import Session

from sqllocks import AsyncSqlLockProvider, LockTimeout, SqlLockProvider
from sqllocks.alembic import migration_guard
from sqllocks.recipes.audit import AsyncAuditChain, AuditChain
from tests.conformance.polling import until
from tests.recipes.tables import audit
from tests.scenarios import jobs
from tests.scenarios.arena import Arena

OWN = {
    "postgresql": (
        "SET lock_timeout = '7s'",
        "SET statement_timeout = '31s'",
        "SET TimeZone = 'Asia/Tokyo'",
        "SET default_transaction_isolation = 'repeatable read'",
    ),
    "mariadb": (
        "SET SESSION innodb_lock_wait_timeout = 7",
        "SET SESSION lock_wait_timeout = 31",
        "SET SESSION time_zone = '+09:00'",
        "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        "SET SESSION autocommit = 0",
    ),
}
WHO = {"postgresql": "SELECT pg_backend_pid()", "mariadb": "SELECT connection_id()"}
ALL = {
    "postgresql": "SELECT name, setting FROM pg_settings",
    "mariadb": "SELECT variable_name, variable_value FROM information_schema.session_variables",
}
CHANGING = {"TIMESTAMP", "RAND_SEED1", "RAND_SEED2", "LAST_INSERT_ID", "IDENTITY", "WARNING_COUNT"}
CHANGING |= {"IN_TRANSACTION", "INSERT_ID", "LAST_GTID", "ERROR_COUNT", "PSEUDO_THREAD_ID"}
"""These tell of the last statement. PostgreSQL's list has the level of the present transaction too."""
POOL = 2


def settings(connection: Connection, server: str) -> dict[str, str]:
    """Return every setting of a connection that does not change by itself."""
    found = {name: value for name, value in connection.execute(text(ALL[server])) if name not in CHANGING}
    found["who"] = str(connection.execute(text(WHO[server])).scalar())
    return found


def of_the_pool(engine: Engine, server: str) -> dict[str, dict[str, str]]:
    """Return the settings of every pooled connection, by session."""
    connections = [engine.connect() for _ in range(POOL)]
    try:
        found = [settings(connection, server) for connection in connections]
    finally:
        for connection in connections:
            connection.close()
    return {each["who"]: each for each in found}


@pytest.fixture
def engine(place: Arena, server: str) -> Iterator[Engine]:
    """Return the application's engine, which the library shares."""
    made = place.target(setup=OWN[server]).engine(pool_size=POOL, max_overflow=0)
    assert isinstance(made, Engine)
    yield made
    made.dispose()


@pytest.mark.parametrize("server", sorted(OWN))
def test_s10_settings_are_the_same_before_and_after_and_inside(engine: Engine, server: str) -> None:
    before = of_the_pool(engine, server)
    assert len(before) == POOL
    [inside] = [before[who] for who in list(before)[:1]]
    assert "9" in inside.get("TIME_ZONE", "") or inside.get("TimeZone") == "Asia/Tokyo"
    with SqlLockProvider(engine) as locks, SqlLockProvider(engine) as others:
        handle = locks.acquire("key", ttl=30)
        assert handle
        assert not others.acquire("key", ttl=30)
        with pytest.raises(LockTimeout):
            others.require_acquire("key", ttl=30, wait=0.2)
        assert locks.release("key", owner_token=handle.owner_token)
        # there is no revision here, of which it would be told
        with pytest.warns(RuntimeWarning), migration_guard(engine), engine.connect() as connection:
            guarded = settings(connection, server)
        assert guarded == before[guarded["who"]]
        with Session(engine) as session:
            AuditChain(locks, audit).append(session, {"n": 1})
            held = settings(session.connection(), server)
            session.commit()
        assert held == before[held["who"]]
        with locks.hold("guarded", ttl=30) as lease, Session(engine) as session:
            lease.guard(session, at_most=9)
            session.commit()
    assert of_the_pool(engine, server) == before


@pytest.mark.parametrize("server", sorted(OWN))
def test_s10_a_cancelled_waiter_and_an_append_of_the_asyncio_form(place: Arena, server: str) -> None:
    kind = next(kind for kind in place.kinds if kind.asyncio)
    made = place.target(kind, setup=OWN[server]).engine(pool_size=POOL, max_overflow=0)
    assert isinstance(made, AsyncEngine)

    async def work() -> None:
        before = await _of_the_async_pool(made, server)
        async with AsyncSqlLockProvider(made) as locks, AsyncSqlLockProvider(made) as others:
            handle = await locks.acquire("key", ttl=30)
            assert handle
            waiter = asyncio.ensure_future(others.require_acquire("key", ttl=30, wait=30))
            await asyncio.sleep(0.3)  # it waits by now, or is cancelled earlier: either must leave nothing
            waiter.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiter
            assert await locks.release("key", owner_token=handle.owner_token)
            async with async_sessionmaker(made)() as session:
                await AsyncAuditChain(locks, audit).append(session, {"n": 1})
                await session.commit()
        assert await _of_the_async_pool(made, server) == before
        await made.dispose()

    jobs.clients.loop.run(work())
    until(lambda: place.observer.rows("SELECT count(*) FROM audit_chain") == [(1,)])


async def _of_the_async_pool(engine: AsyncEngine, server: str) -> dict[str, dict[str, Any]]:
    connections = [await engine.connect() for _ in range(POOL)]
    try:
        found = [await connection.run_sync(settings, server) for connection in connections]
    finally:
        for connection in connections:
            await connection.close()
    return {each["who"]: each for each in found}
