"""postgresql-lock: advisory locks on the caller's connection."""

from __future__ import annotations

from typing import Any

import asyncpg
import psycopg
from postgresql_lock import Lock

from benchmarks.contenders import Asyncio, AsyncPool, Blocking, Entry, Family, Pool, connections_for


class PostgresqlLock(Blocking):
    def open(self) -> None:
        self.pool = Pool(
            lambda: psycopg.connect(self.place.url, autocommit=True), connections_for(self.callers)
        )

    def take(self, caller: int, key: str, *, block: bool = False) -> Any:
        lock = Lock(self.pool.borrow(), key, interface="psycopg3")
        if lock.acquire(block=block):
            return lock
        self.pool.back(lock.conn)
        return None

    def give(self, caller: int, key: str, taken: Any) -> None:
        taken.release()
        self.pool.back(taken.conn)

    def wait(self, caller: int, key: str) -> Any:
        return self.take(caller, key, block=True)

    def close(self) -> None:
        self.pool.close()


class AsyncPostgresqlLock(Asyncio):
    async def open(self) -> None:
        self.pool = await AsyncPool.of(lambda: asyncpg.connect(self.place.url), connections_for(self.callers))

    async def take(self, caller: int, key: str, *, block: bool = False) -> Any:
        lock = Lock(await self.pool.borrow(), key, interface="asyncpg")
        if await lock.acquire_async(block=block):
            return lock
        self.pool.back(lock.conn)
        return None

    async def give(self, caller: int, key: str, taken: Any) -> None:
        await taken.release_async()
        self.pool.back(taken.conn)

    async def wait(self, caller: int, key: str) -> Any:
        return await self.take(caller, key, block=True)

    async def close(self) -> None:
        await self.pool.close()


def entries(server: str) -> list[Entry]:
    if server != "postgresql":
        return []
    return [
        Entry("postgresql-lock", Family.SESSION, "psycopg", PostgresqlLock),
        Entry("postgresql-lock", Family.SESSION, "asyncpg", AsyncPostgresqlLock),
    ]
