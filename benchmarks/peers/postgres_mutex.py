"""postgres-mutex: a table with heartbeats; an object for each lock, a pool for the connections."""

from __future__ import annotations

from typing import Any

from postgres_mutex import Mutex
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from benchmarks.contenders import Asyncio, Blocking, Entry, Family, connections_for

OPTIONS = {"autocommit": True}


class PostgresMutex(Blocking):
    def open(self) -> None:
        size = connections_for(self.callers)
        self.pool = ConnectionPool(self.place.url, min_size=size, max_size=size, kwargs=OPTIONS, open=True)
        Mutex(lock_name="any", pool=self.pool).create_schema()
        self.locks: dict[tuple[int, str], Mutex] = {}

    def take(self, caller: int, key: str, *, block: bool = False) -> Any:
        if (caller, key) not in self.locks:
            self.locks[caller, key] = Mutex(lock_name=key, pool=self.pool)
        block_of = self.locks[caller, key].acquire(blocking=block)
        if block_of.__enter__():
            return block_of
        block_of.__exit__(None, None, None)
        return None

    def give(self, caller: int, key: str, taken: Any) -> None:
        taken.__exit__(None, None, None)

    def wait(self, caller: int, key: str) -> Any:
        return self.take(caller, key, block=True)

    def close(self) -> None:
        self.pool.close()


class AsyncPostgresMutex(Asyncio):
    async def open(self) -> None:
        size = connections_for(self.callers)
        self.pool = AsyncConnectionPool(
            self.place.url, min_size=size, max_size=size, kwargs=OPTIONS, open=False
        )
        await self.pool.open(wait=True)
        await Mutex(lock_name="any", async_pool=self.pool).create_schema_async()
        self.locks: dict[tuple[int, str], Mutex] = {}

    async def take(self, caller: int, key: str, *, block: bool = False) -> Any:
        if (caller, key) not in self.locks:
            self.locks[caller, key] = Mutex(lock_name=key, async_pool=self.pool)
        block_of = self.locks[caller, key].acquire_async(blocking=block)
        if await block_of.__aenter__():
            return block_of
        await block_of.__aexit__(None, None, None)
        return None

    async def give(self, caller: int, key: str, taken: Any) -> None:
        await taken.__aexit__(None, None, None)

    async def wait(self, caller: int, key: str) -> Any:
        return await self.take(caller, key, block=True)

    async def close(self) -> None:
        await self.pool.close()


def entries(server: str) -> list[Entry]:
    if server != "postgresql":
        return []
    return [
        Entry("postgres-mutex", Family.TABLE, "psycopg", PostgresMutex),
        Entry("postgres-mutex", Family.TABLE, "psycopg", AsyncPostgresMutex),
    ]
