"""mithril-locks: a table with fencing tokens, on SQLAlchemy's pool; an object for each acquire."""

from __future__ import annotations

import logging
from typing import Any

import structlog
from mithril import Lock
from mithril.aio import AsyncLock
from mithril.backends import PostgresBackend, SQLiteBackend
from mithril.backends.aio import AsyncPostgresBackend
from mithril.exceptions import LockTimeoutError
from sqlalchemy import create_engine, make_url
from sqlalchemy.ext.asyncio import create_async_engine

from benchmarks.contenders import TTL, Asyncio, Blocking, Entry, Family, connections_for
from tests.servers import url_for


class Mithril(Blocking):
    driver: str

    def open(self) -> None:
        _be_quiet()
        url = url_for(make_url(self.place.url), self.driver)
        self.engine = create_engine(url, pool_size=connections_for(self.callers), max_overflow=0)
        self.backend = (SQLiteBackend if self.driver == "pysqlite" else PostgresBackend)(self.engine)

    def take(self, caller: int, key: str, *, timeout: float = 0) -> Any:
        lock = Lock(key, backend=self.backend, ttl=TTL)
        try:
            lock.acquire(timeout=timeout)
        except LockTimeoutError:
            return None
        return lock

    def give(self, caller: int, key: str, taken: Any) -> None:
        taken.release()

    def wait(self, caller: int, key: str) -> Any:
        return self.take(caller, key, timeout=TTL)

    def close(self) -> None:
        self.engine.dispose()


class AsyncMithril(Asyncio):
    async def open(self) -> None:
        _be_quiet()
        url = url_for(make_url(self.place.url), "asyncpg")
        self.engine = create_async_engine(url, pool_size=connections_for(self.callers), max_overflow=0)
        self.backend = AsyncPostgresBackend(self.engine)
        await self.backend.initialize()

    async def take(self, caller: int, key: str, *, timeout: float = 0) -> Any:
        lock = AsyncLock(key, backend=self.backend, ttl=TTL)
        try:
            await lock.acquire(timeout=timeout)
        except LockTimeoutError:
            return None
        return lock

    async def give(self, caller: int, key: str, taken: Any) -> None:
        await taken.release()

    async def wait(self, caller: int, key: str) -> Any:
        return await self.take(caller, key, timeout=TTL)

    async def close(self) -> None:
        await self.engine.dispose()


def _be_quiet() -> None:
    # it logs each grant to standard output
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def entries(server: str) -> list[Entry]:
    if server == "sqlite":
        return [
            Entry("mithril-locks", Family.TABLE, "pysqlite", type("S", (Mithril,), {"driver": "pysqlite"}))
        ]
    if server != "postgresql":
        return []
    return [
        Entry("mithril-locks", Family.TABLE, "psycopg2", type("P", (Mithril,), {"driver": "psycopg2"})),
        Entry("mithril-locks", Family.TABLE, "asyncpg", AsyncMithril),
    ]
