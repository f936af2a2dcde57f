"""sqlalchemy-dlock: advisory and named locks; a connection of its own for each held lock."""

from __future__ import annotations

from typing import Any

from sqlalchemy import create_engine, make_url
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy_dlock import create_async_sadlock, create_sadlock

from benchmarks.contenders import Asyncio, AsyncPool, Blocking, Entry, Family, Pool, connections_for
from tests.servers import url_for


class Dlock(Blocking):
    driver: str

    def open(self) -> None:
        url = url_for(make_url(self.place.url), self.driver)
        size = connections_for(self.callers)
        self.engine = create_engine(url, isolation_level="AUTOCOMMIT", pool_size=size)
        self.pool = Pool(self.engine.connect, size)

    def take(self, caller: int, key: str, *, block: bool = False) -> Any:
        connection = self.pool.borrow()
        lock = create_sadlock(connection, key)
        if lock.acquire(block=block):
            return connection, lock
        self.pool.back(connection)
        return None

    def give(self, caller: int, key: str, taken: Any) -> None:
        taken[1].release()
        self.pool.back(taken[0])

    def wait(self, caller: int, key: str) -> Any:
        return self.take(caller, key, block=True)

    def close(self) -> None:
        self.pool.close()
        self.engine.dispose()


class AsyncDlock(Asyncio):
    driver: str

    async def open(self) -> None:
        url = url_for(make_url(self.place.url), self.driver)
        size = connections_for(self.callers)
        self.engine = create_async_engine(url, isolation_level="AUTOCOMMIT", pool_size=size)
        self.pool = await AsyncPool.of(self.engine.connect, size)

    async def take(self, caller: int, key: str, *, block: bool = False) -> Any:
        connection = await self.pool.borrow()
        lock = create_async_sadlock(connection, key)
        if await lock.acquire(block=block):
            return connection, lock
        self.pool.back(connection)
        return None

    async def give(self, caller: int, key: str, taken: Any) -> None:
        await taken[1].release()
        self.pool.back(taken[0])

    async def wait(self, caller: int, key: str) -> Any:
        return await self.take(caller, key, block=True)

    async def close(self) -> None:
        await self.pool.close()
        await self.engine.dispose()


def entries(server: str) -> list[Entry]:
    if server == "sqlite":
        return []
    blocking, awaited = ("psycopg", "asyncpg") if server == "postgresql" else ("pymysql", "aiomysql")
    return [
        Entry("sqlalchemy-dlock", Family.SESSION, blocking, type("D", (Dlock,), {"driver": blocking})),
        Entry("sqlalchemy-dlock", Family.SESSION, awaited, type("A", (AsyncDlock,), {"driver": awaited})),
    ]
