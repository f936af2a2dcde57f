"""sqllocks itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import make_url

from benchmarks.contenders import TTL, Asyncio, Blocking, Entry, Family
from sqllocks import AsyncSqlLockProvider, LockHandle, SqlLockProvider
from tests.servers import url_for

BLOCKING = {"postgresql": "psycopg", "mysql": "pymysql", "mariadb": "pymysql", "sqlite": "pysqlite"}
ASYNCIO = {
    "postgresql": ("asyncpg", "psycopg"),
    "mysql": ("aiomysql", "asyncmy"),
    "mariadb": ("aiomysql", "asyncmy"),
    "sqlite": ("aiosqlite",),
}


class Leases(Blocking):
    """Leases in the blocking form."""

    driver: str

    def open(self) -> None:
        url = url_for(make_url(self.place.url), self.driver)
        self.locks = SqlLockProvider(url.render_as_string(hide_password=False))
        self.locks.create_table()

    def take(self, caller: int, key: str) -> LockHandle:
        return self.locks.acquire(key, ttl=TTL)

    def give(self, caller: int, key: str, taken: Any) -> None:
        if not self.locks.release(key, owner_token=taken.owner_token):
            raise RuntimeError(f"{key} was not ours any more")

    def wait(self, caller: int, key: str) -> LockHandle:
        return self.locks.require_acquire(key, ttl=TTL, wait=TTL)

    def close(self) -> None:
        self.locks.close()


class AsyncLeases(Asyncio):
    """Leases in the asyncio form."""

    driver: str

    async def open(self) -> None:
        url = url_for(make_url(self.place.url), self.driver)
        self.locks = AsyncSqlLockProvider(url.render_as_string(hide_password=False))
        await self.locks.create_table()

    async def take(self, caller: int, key: str) -> LockHandle:
        return await self.locks.acquire(key, ttl=TTL)

    async def give(self, caller: int, key: str, taken: Any) -> None:
        if not await self.locks.release(key, owner_token=taken.owner_token):
            raise RuntimeError(f"{key} was not ours any more")

    async def wait(self, caller: int, key: str) -> LockHandle:
        return await self.locks.require_acquire(key, ttl=TTL, wait=TTL)

    async def close(self) -> None:
        await self.locks.aclose()


def with_driver(kind: type[Any], driver: str) -> Callable[..., Any]:
    """Return the class for one driver."""
    return type(f"{kind.__name__}_{driver}", (kind,), {"driver": driver})


def entries(server: str) -> list[Entry]:
    """Return sqllocks on each driver of a server."""
    driver = BLOCKING[server]
    blocking = [Entry("sqllocks", Family.OWN, driver, with_driver(Leases, driver))]
    awaited = [
        Entry("sqllocks", Family.OWN, driver, with_driver(AsyncLeases, driver)) for driver in ASYNCIO[server]
    ]
    return [*blocking, *awaited]
