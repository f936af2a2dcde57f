"""S19. Lock operations do not depend on the transaction that the caller has open, nor disturb it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker
from sqlalchemy.orm import sessionmaker

from sqllocks import AsyncSqlLockProvider, BackendUnavailable, LockHandle, SqlLockProvider
from tests.conformance.driving import Client
from tests.conformance.kinds import Kind
from tests.conformance.polling import Stopwatch
from tests.scenarios import jobs
from tests.scenarios.arena import NETWORK_KINDS, TABLE_KINDS, Arena
from tests.scenarios.targets import Target

TTL = 30.0
NOTES = "CREATE TABLE IF NOT EXISTS notes (name VARCHAR(80) PRIMARY KEY, content VARCHAR(80))"
READ = "SELECT content FROM notes WHERE name = :name"
WRITE = "INSERT INTO notes (name, content) VALUES (:name, :content)"
CHANGE = "UPDATE notes SET content = :content WHERE name = :name"

each_kind = pytest.mark.parametrize("kind", NETWORK_KINDS, ids=[kind.name for kind in NETWORK_KINDS])
SQLITE_KINDS = tuple(kind for kind in TABLE_KINDS if kind.server == "sqlite")
each_sqlite_kind = pytest.mark.parametrize("kind", SQLITE_KINDS, ids=[kind.name for kind in SQLITE_KINDS])


class Caller:
    """The application: one engine with one connection, and a session in the middle of a transaction."""

    def __init__(self, arena: Arena, target: Target) -> None:
        self.arena = arena
        self.asyncio = target.asyncio
        # no second connection is to be had from it
        self.engine = arena.engine(target, pool_size=1, max_overflow=0, pool_timeout=5)
        self.factory: Any = (
            async_sessionmaker(self.engine)
            if isinstance(self.engine, AsyncEngine)
            else sessionmaker(self.engine)
        )
        form = AsyncSqlLockProvider if self.asyncio else SqlLockProvider
        loop = jobs.clients.loop if self.asyncio else None
        self.client = Client(form(self.factory), loop=loop, threads=jobs.clients.threads)
        self.session: Any = None

    @contextmanager
    def transaction(self) -> Iterator[Caller]:
        """Open a transaction; what was not ended is rolled back."""
        self.session = self.factory()
        try:
            yield self
        finally:
            self._do(self.session.close)
            self.client.close()

    def execute(self, statement: str, /, **values: Any) -> Any:
        return self._do(self.session.execute, text(statement), values)

    def read(self, name: str) -> str | None:
        return self.execute(READ, name=name).scalar()  # type: ignore[no-any-return]

    def rollback(self) -> None:
        self._do(self.session.rollback)

    def savepoint(self) -> Callable[[], None]:
        """Set a savepoint; return how to go back to it."""
        made = self._do(self.session.begin_nested)
        return lambda: self._do(made.rollback)

    def _do(self, method: Callable[..., Any], *arguments: Any) -> Any:
        if not self.asyncio:
            return method(*arguments)

        async def work() -> Any:
            return await method(*arguments)

        return jobs.clients.loop.run(work())


def go_through_a_lock(caller: Caller, stranger: Contender) -> LockHandle:
    """Acquire, renew and release; another process sees each at once. Return a lease that is still held."""
    key, kept = caller.arena.key("from-within"), caller.arena.key("kept")
    handle = caller.client.acquire(key, ttl=TTL)
    assert handle.acquired
    assert stranger.meets(key) == (handle.fencing_token, handle.expires_at)
    extended = caller.client.extend(key, owner_token=handle.owner_token, ttl=2 * TTL)
    assert extended is not None
    assert extended.expires_at > handle.expires_at
    assert stranger.meets(key) == (handle.fencing_token, extended.expires_at)
    assert caller.client.release(key, owner_token=handle.owner_token) is True
    assert stranger.takes(key)
    remaining = caller.client.acquire(kept, ttl=TTL)
    assert remaining.acquired
    return remaining


class Contender:
    """Another process that wants the same locks."""

    def __init__(self, arena: Arena) -> None:
        self._target = arena.target()
        (self._worker,) = arena.workers([self._target])

    def meets(self, key: str) -> tuple[int, Any]:
        """Return token and expiry of the lock that a try with zero wait meets."""
        handle = self._worker.run(jobs.call, self._target, "acquire", key, ttl=TTL)
        assert not handle.acquired
        return handle.fencing_token, handle.expires_at

    def takes(self, key: str) -> bool:
        """Take a key with zero wait and give it back; tell whether it was granted."""
        return self._worker.run(jobs.take_each, self._target, [key], ttl=TTL) == [True]


def end(caller: Caller, stranger: Contender, remaining: LockHandle) -> None:
    """Roll back; the lease is not touched by it."""
    caller.rollback()
    key = remaining.lock_key
    assert stranger.meets(key) == (remaining.fencing_token, remaining.expires_at)
    assert caller.client.release(key, owner_token=remaining.owner_token) is True
    assert stranger.takes(key)


@each_kind
def test_s19_within_read_committed_and_writes(arena: Arena, kind: Kind) -> None:
    arena.observer.rows(NOTES)
    stranger, name = Contender(arena), arena.key("note")
    with Caller(arena, arena.target(kind, isolation="READ COMMITTED")).transaction() as caller:
        caller.execute(WRITE, name=name, content="mine")
        remaining = go_through_a_lock(caller, stranger)
        assert arena.observer.rows(READ, name=name) == [], "the caller's write was committed"
        assert caller.read(name) == "mine"
        end(caller, stranger, remaining)
    assert arena.observer.rows(READ, name=name) == []


@each_kind
def test_s19_within_repeatable_read_and_a_snapshot(arena: Arena, kind: Kind) -> None:
    arena.observer.rows(NOTES)
    stranger, name = Contender(arena), arena.key("note")
    arena.observer.rows(WRITE, name=name, content="old")
    with Caller(arena, arena.target(kind, isolation="REPEATABLE READ")).transaction() as caller:
        assert caller.read(name) == "old"
        arena.observer.rows(CHANGE, name=name, content="new")
        remaining = go_through_a_lock(caller, stranger)
        assert caller.read(name) == "old", "the caller's snapshot was lost"
        end(caller, stranger, remaining)
        assert caller.read(name) == "new"


@each_kind
def test_s19_within_a_transaction_that_met_an_error(arena: Arena, kind: Kind) -> None:
    arena.observer.rows(NOTES)
    stranger, name = Contender(arena), arena.key("note")
    with Caller(arena, arena.target(kind)).transaction() as caller:
        caller.execute(WRITE, name=name, content="mine")
        with pytest.raises(DBAPIError):
            caller.execute("SELECT 1 FROM no_such_table")
        remaining = go_through_a_lock(caller, stranger)
        if kind.server == "postgresql":
            with pytest.raises(DBAPIError, match="current transaction is aborted"):
                caller.execute("SELECT 1")
        else:  # there an error undoes its own statement only
            assert caller.read(name) == "mine"
        end(caller, stranger, remaining)
        assert caller.read(name) is None


@each_kind
def test_s19_within_a_savepoint(arena: Arena, kind: Kind) -> None:
    arena.observer.rows(NOTES)
    stranger, outer, inner = Contender(arena), arena.key("outer"), arena.key("inner")
    with Caller(arena, arena.target(kind)).transaction() as caller:
        caller.execute(WRITE, name=outer, content="outer")
        go_back = caller.savepoint()
        caller.execute(WRITE, name=inner, content="inner")
        remaining = go_through_a_lock(caller, stranger)
        go_back()
        assert stranger.meets(remaining.lock_key) == (remaining.fencing_token, remaining.expires_at)
        assert (caller.read(outer), caller.read(inner)) == ("outer", None)
        end(caller, stranger, remaining)
        assert caller.read(outer) is None


@each_sqlite_kind
def test_s19_on_sqlite_beside_a_transaction_that_only_reads(arena: Arena, kind: Kind) -> None:
    arena.observer.rows(NOTES)
    arena.use_journal("WAL")
    stranger, name = Contender(arena), arena.key("note")
    arena.observer.rows(WRITE, name=name, content="old")
    with Caller(arena, arena.target(kind)).transaction() as caller:
        caller.execute("BEGIN")  # the driver by itself begins before a write only
        assert caller.read(name) == "old"
        arena.observer.rows(CHANGE, name=name, content="new")
        remaining = go_through_a_lock(caller, stranger)
        assert caller.read(name) == "old", "the caller's snapshot was lost"
        end(caller, stranger, remaining)
        assert caller.read(name) == "new"


@each_sqlite_kind
@pytest.mark.parametrize("journal", ["DELETE", "WAL"])
def test_s19_on_sqlite_a_transaction_that_writes_is_named(arena: Arena, kind: Kind, journal: str) -> None:
    arena.observer.rows(NOTES)
    arena.use_journal(journal)
    stranger, name, key = Contender(arena), arena.key("note"), arena.key()
    with Caller(arena, arena.target(kind)).transaction() as caller:
        caller.execute(WRITE, name=name, content="mine")
        watch = Stopwatch()
        with pytest.raises(BackendUnavailable, match="commit or roll that transaction back"):
            caller.client.acquire(key, ttl=TTL)
        assert watch.seconds < 3
        assert caller.read(name) == "mine", "the caller's transaction was disturbed"
        caller.rollback()
        assert stranger.takes(key)
    assert arena.observer.rows(READ, name=name) == []
