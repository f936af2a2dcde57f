"""E. The application's own transactions and connections are left alone."""

from __future__ import annotations

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from sqllocks import BackendUnavailable, LockNotAcquired
from tests.conformance.calls import TTL
from tests.conformance.polling import Stopwatch
from tests.conformance.subject import Subject

ROWS = "CREATE TABLE IF NOT EXISTS app_rows (name VARCHAR(80))"
WRITE = "INSERT INTO app_rows (name) VALUES (:name)"
COUNT = "SELECT count(*) FROM app_rows WHERE name = :name"

MOVING = {"timestamp", "statement_id", "pseudo_thread_id", "last_gtid", "rand_seed1", "rand_seed2"}
"""Session variables of MySQL and MariaDB that change by themselves."""


def written(subject: Subject, name: str) -> int:
    """Count the rows that the application committed under a name."""
    return int(subject.observer.rows(COUNT, name=name)[0][0])


def test_c058_a_lock_outlives_the_rollback_around_it(network_subject: Subject) -> None:
    network_subject.observer.rows(ROWS)
    factory = network_subject.sessionmaker(network_subject.engine())
    client = network_subject.client(factory)
    key = network_subject.key()
    with network_subject.transaction(factory) as transaction:
        transaction.execute(WRITE, name=key)
        handle = client.acquire(key, ttl=TTL)
        assert handle.acquired is True
        assert network_subject.b.locked(key) is True
        assert network_subject.stored(key).owner_token == handle.owner_token
        assert network_subject.b.acquire(key, ttl=TTL).acquired is False
        transaction.rollback()
    assert network_subject.b.locked(key) is True
    assert written(network_subject, key) == 0
    assert client.release(key, owner_token=handle.owner_token) is True


def test_c058_a_release_outlives_the_rollback_around_it(network_subject: Subject) -> None:
    network_subject.observer.rows(ROWS)
    factory = network_subject.sessionmaker(network_subject.engine())
    client = network_subject.client(factory)
    key = network_subject.key()
    handle = client.acquire(key, ttl=TTL)
    with network_subject.transaction(factory) as transaction:
        transaction.execute(WRITE, name=key)
        assert client.release(key, owner_token=handle.owner_token) is True
        assert network_subject.b.locked(key) is False
        transaction.rollback()
    assert network_subject.b.locked(key) is False


def test_c058_the_transaction_around_a_lock_can_be_committed(network_subject: Subject) -> None:
    network_subject.observer.rows(ROWS)
    factory = network_subject.sessionmaker(network_subject.engine())
    client = network_subject.client(factory)
    key = network_subject.key()
    with network_subject.transaction(factory) as transaction:
        transaction.execute(WRITE, name=key)
        assert client.acquire(key, ttl=TTL).acquired is True
        assert written(network_subject, key) == 0, "the acquire committed the caller's transaction"
        transaction.commit()
    assert written(network_subject, key) == 1


def test_c058_sqlite_names_the_transaction_that_is_open(sqlite_subject: Subject) -> None:
    sqlite_subject.observer.rows(ROWS)
    factory = sqlite_subject.sessionmaker(sqlite_subject.engine())
    client = sqlite_subject.client(factory)
    key = sqlite_subject.key()
    with sqlite_subject.transaction(factory) as transaction:
        transaction.execute(WRITE, name=key)
        watch = Stopwatch()
        with pytest.raises(BackendUnavailable, match="transaction") as caught:
            client.acquire(key, ttl=TTL)
        assert watch.seconds < 2
        assert not isinstance(caught.value, LockNotAcquired)
        watch = Stopwatch()
        with pytest.raises(BackendUnavailable, match="transaction"):
            client.require_acquire(key, ttl=TTL, wait=0.6)
        assert 0.55 < watch.seconds < 3
        transaction.rollback()
    assert sqlite_subject.unknown(key)
    assert client.acquire(key, ttl=TTL).acquired is True
    assert written(sqlite_subject, key) == 0


def test_c058_sqlite_gets_the_lock_when_the_transaction_ends_in_time(sqlite_subject: Subject) -> None:
    key = sqlite_subject.key()
    with sqlite_subject.observer.holding(key) as foreign:
        waiting = sqlite_subject.b.start("require_acquire", key, ttl=TTL, wait=20)
        assert not waiting.done()
        foreign.end()
        assert waiting.result(20).acquired is True


@pytest.mark.parametrize("bound", ["engine", "sessionmaker"])
def test_c059_the_callers_pool_is_not_touched(table_subject: Subject, bound: str) -> None:
    # one connection, no more to be had, and it is out
    engine = table_subject.engine(pool_size=1, max_overflow=0, pool_timeout=60)
    factory = table_subject.sessionmaker(engine)
    client = table_subject.client(engine if bound == "engine" else factory)
    pool = (engine.sync_engine if isinstance(engine, AsyncEngine) else engine).pool
    key = table_subject.key()
    with table_subject.transaction(factory) as transaction:
        transaction.execute("SELECT 1")
        if table_subject.kind.server == "sqlite":
            transaction.rollback()  # keeps the file free, and lets the connection go
            transaction.execute("SELECT 1")
        assert pool.checkedout() == 1  # type: ignore[attr-defined]
        watch = Stopwatch()
        handle = client.acquire(key, ttl=TTL)
        assert handle.acquired is True
        assert pool.checkedout() == 1  # type: ignore[attr-defined]
        assert client.locked(key) is True
        assert client.extend(key, owner_token=handle.owner_token, ttl=TTL) is not None
        assert client.inspect(key) is not None
        assert client.release(key, owner_token=handle.owner_token) is True
        assert pool.checkedout() == 1  # type: ignore[attr-defined]
        assert watch.seconds < 10
    assert pool.checkedout() == 0  # type: ignore[attr-defined]


def test_c059_each_call_is_over_when_it_returns(table_subject: Subject) -> None:
    observer = table_subject.observer
    key = table_subject.key()
    before = observer.open_transactions()
    handle = table_subject.a.acquire(key, ttl=TTL)
    assert observer.open_transactions() == before
    assert table_subject.stored(key).owner_token == handle.owner_token
    table_subject.b.acquire(key, ttl=TTL)
    assert observer.open_transactions() == before
    longer = table_subject.a.extend(key, owner_token=handle.owner_token, ttl=2 * TTL)
    assert longer is not None
    assert observer.open_transactions() == before
    assert table_subject.stored(key).expires_at == longer.expires_at
    table_subject.a.locked(key)
    table_subject.a.list_locks(prefix=key)
    assert observer.open_transactions() == before
    assert table_subject.a.release(key, owner_token=handle.owner_token) is True
    assert observer.open_transactions() == before
    assert table_subject.stored(key).attempt == ""


def test_c059_the_callers_connections_keep_their_settings(network_subject: Subject) -> None:
    engine = network_subject.engine(pool_size=1, max_overflow=0)
    factory = network_subject.sessionmaker(engine)
    client = network_subject.client(engine)
    if network_subject.kind.server == "postgresql":
        settings = "SELECT name, setting FROM pg_settings ORDER BY name"
    else:
        settings = "SHOW SESSION VARIABLES"

    def seen() -> dict[str, str]:
        with network_subject.transaction(factory) as transaction:
            return {str(name): str(value) for name, value in transaction.execute(settings)}

    before = seen()
    handle = client.acquire(network_subject.key(), ttl=TTL)
    client.acquire(handle.lock_key, ttl=TTL)
    client.release(handle.lock_key, owner_token=handle.owner_token)
    after = seen()
    changed = {name for name in before if before[name] != after.get(name)}
    assert changed - MOVING == set()
