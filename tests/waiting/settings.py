"""Where a test of waiting takes place: one backend, driver and form, and providers on it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import URL, Engine, create_engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from sqllocks import AsyncMemoryLockProvider, AsyncSqlLockProvider, MemoryLockProvider, SqlLockProvider
from tests.conformance.driving import Client, LoopThread
from tests.conformance.kinds import Kind
from tests.servers import clients, require_server
from tests.servers.urls import fresh_database, url_for

T = TypeVar("T")

LOCK = text("SELECT lock_key FROM core_locks WHERE lock_key = :key FOR UPDATE")
WAITED = (
    "SELECT pid, objid::bigint FROM pg_locks WHERE locktype = 'advisory' AND classid = 1936813164 "
    "AND mode = 'ShareLock' AND granted AND objid <> 0 "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
"""The sessions of a PostgreSQL database that are registered as waiting, and for what."""
TTL = 60.0
PATIENCE = 60.0


class Setting:
    """Providers of one kind on one database; what a test opened is closed at its end."""

    def __init__(
        self, kind: Kind, url: URL | None, stack: ExitStack, *, connect_args: dict[str, Any] | None = None
    ) -> None:
        self.kind = kind
        self._url = url
        self._stack = stack
        self._connect_args = connect_args or {}
        self._loop: LoopThread | None = None
        self._threads: ThreadPoolExecutor | None = None

    @property
    def url(self) -> URL:
        """Return the address for this kind's driver."""
        assert self._url is not None
        return self._url

    @property
    def address(self) -> str:
        """Return the address as a text that can be used, password and all."""
        return self.url.render_as_string(hide_password=False)

    @property
    def loop(self) -> LoopThread:
        """Return the loop of the asyncio objects."""
        if self._loop is None:
            self._loop = LoopThread()
            self._stack.callback(self._loop.close)
        return self._loop

    def engine(self) -> Engine | AsyncEngine:
        """Return an engine of the application."""
        if self.kind.asyncio:
            engine, loop = create_async_engine(self.url, connect_args=self._connect_args), self.loop
            self._stack.callback(lambda: loop.run(engine.dispose()))
            return engine
        blocking = create_engine(self.url, connect_args=self._connect_args)
        self._stack.callback(blocking.dispose)
        return blocking

    def client(self, bind: Any = None, **options: Any) -> Client:
        """Return a client with a provider of its own; two on one address share their lines."""
        provider: Any
        if not self.kind.table:
            provider = (AsyncMemoryLockProvider if self.kind.asyncio else MemoryLockProvider)(**options)
        else:
            form = AsyncSqlLockProvider if self.kind.asyncio else SqlLockProvider
            provider = form(self.address if bind is None else bind, **options)
        client = Client(provider, loop=self.loop if self.kind.asyncio else None, threads=self._pool)
        self._stack.callback(client.close)
        return client

    def stranger(self, **options: Any) -> Client:
        """Return a client that shares nothing with those on the address, as another process would."""
        return self.client(self.engine(), **options)

    def query(self, statement: str) -> Sequence[Sequence[Any]]:
        """Run a statement on a connection of its own."""
        return clients.execute(
            self.url.render_as_string(hide_password=False).replace(f"+{self.kind.driver}", ""), statement
        )

    def waited(self) -> list[int]:
        """Return the signals that sessions wait for, as PostgreSQL shows them."""
        return sorted(int(number) for _, number in self.query(WAITED))

    @contextmanager
    def locking(self, key: str) -> Iterator[Callable[[], None]]:
        """Keep the row of a key locked in an open transaction of somebody else; gives what ends it."""
        drivers = {"postgresql": "psycopg", "sqlite": "pysqlite"}
        driver = drivers.get(self.kind.server, "pymysql")
        engine = create_engine(self.url.set(drivername=f"{self.kind.server}+{driver}"))
        with engine.connect() as connection:
            assert connection.execute(LOCK, {"key": key}).all()
            yield connection.rollback
        engine.dispose()

    @property
    def _pool(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = self._stack.enter_context(ThreadPoolExecutor(256, "waiting"))
        return self._threads


class Databases:
    """A database with the lock table for each server, made when first needed."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._known: dict[str, URL] = {}

    def of(self, kind: Kind) -> URL | None:
        """Return the address for a kind; skips the test where its server is missing."""
        if not kind.table:
            return None
        if kind.server not in self._known:
            require_server(kind.server)
            base = self._stack.enter_context(fresh_database(kind.server))
            driver = {"postgresql": "psycopg", "sqlite": "pysqlite"}.get(kind.server, "pymysql")
            with SqlLockProvider(url_for(base, driver)) as provider:
                provider.create_table()
            self._known[kind.server] = base
        return kind.url(self._known[kind.server])


def until(look: Callable[[], T], *, within: float = 10.0, what: str = "") -> T:
    """Return the first true answer of ``look``; fail once ``within`` seconds are over."""
    limit = time.monotonic() + within
    while not (answer := look()):
        assert time.monotonic() < limit, f"not within {within} s: {what or look}"
        time.sleep(0.002)
    return answer


async def async_until(look: Callable[[], T], *, within: float = 10.0, what: str = "") -> T:
    """The same on a loop."""
    limit = time.monotonic() + within
    while not (answer := look()):
        assert time.monotonic() < limit, f"not within {within} s: {what or look}"
        await asyncio.sleep(0.002)
    return answer


def standing(provider: Any, key: str) -> int:
    """Return how many stand in line for a key of the provider's table in this process."""
    lines = provider._leases._waiting._lines._lines
    return sum(len(line.waiters) for line in list(lines.get(key, {}).values()))


def one_after_another(client: Client, key: str, count: int, **options: Any) -> list[Future[Any]]:
    """Begin to wait several times; each stands in line before the next one comes."""
    futures: list[Future[Any]] = []
    for number in range(standing(client.provider, key) + 1, standing(client.provider, key) + count + 1):
        futures.append(client.start("require_acquire", key, ttl=TTL, **options))
        until(partial(_stands, client.provider, key, number))
    return futures


def _stands(provider: Any, key: str, number: int) -> bool:
    return standing(provider, key) >= number
