"""pg-dlock: advisory locks; each lock object opens a connection, which is kept here from use to use."""

from __future__ import annotations

from typing import Any

from pg_dlock import AsyncLocker, Locker

from benchmarks.contenders import Asyncio, Blocking, Entry, Family


class PgDlock(Blocking):
    def open(self) -> None:
        self.locker = Locker(self.place.url)
        self.locks: dict[str, Any] = {}

    def take(self, caller: int, key: str, *, block: bool = False) -> Any:
        lock = self.locks.get(key) or self.locks.setdefault(key, self.locker.lock(key))
        return lock if lock.acquire(blocking=block) else None

    def give(self, caller: int, key: str, taken: Any) -> None:
        taken.release()

    def wait(self, caller: int, key: str) -> Any:
        return self.take(caller, key, block=True)

    def close(self) -> None:
        for lock in self.locks.values():
            lock._close_conn()  # there is no public way but to leave a `with`
        self.locker.close()


class AsyncPgDlock(Asyncio):
    async def open(self) -> None:
        self.locker = AsyncLocker(self.place.url)
        self.locks: dict[str, Any] = {}

    async def take(self, caller: int, key: str, *, block: bool = False) -> Any:
        if key not in self.locks:
            self.locks[key] = await self.locker.lock(key)
        lock = self.locks[key]
        return lock if await lock.acquire(blocking=block) else None

    async def give(self, caller: int, key: str, taken: Any) -> None:
        await taken.release()

    async def wait(self, caller: int, key: str) -> Any:
        return await self.take(caller, key, block=True)

    async def close(self) -> None:
        for lock in self.locks.values():
            await lock._close_conn()
        await self.locker.close()


def entries(server: str) -> list[Entry]:
    if server != "postgresql":
        return []
    return [
        Entry("pg-dlock", Family.SESSION, "psycopg", PgDlock, most=64),
        Entry("pg-dlock", Family.SESSION, "psycopg", AsyncPgDlock, most=64),
    ]
