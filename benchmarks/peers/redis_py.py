"""redis-py's own Lock, in both forms, with tokens that belong to no thread."""

from __future__ import annotations

from typing import Any

import redis
import redis.asyncio

from benchmarks.contenders import TTL, Asyncio, Blocking, Entry, Family


class RedisLock(Blocking):
    def open(self) -> None:
        assert self.place.redis is not None
        self.client = redis.Redis.from_url(self.place.redis)

    def take(self, caller: int, key: str, *, block: bool = False) -> Any:
        lock = self.client.lock(key, timeout=TTL, thread_local=False)
        return lock if lock.acquire(blocking=block) else None

    def give(self, caller: int, key: str, taken: Any) -> None:
        taken.release()

    def wait(self, caller: int, key: str) -> Any:
        return self.take(caller, key, block=True)

    def close(self) -> None:
        self.client.close()


class AsyncRedisLock(Asyncio):
    async def open(self) -> None:
        assert self.place.redis is not None
        self.client = redis.asyncio.Redis.from_url(self.place.redis)

    async def take(self, caller: int, key: str, *, block: bool = False) -> Any:
        lock = self.client.lock(key, timeout=TTL, thread_local=False)
        return lock if await lock.acquire(blocking=block) else None

    async def give(self, caller: int, key: str, taken: Any) -> None:
        await taken.release()

    async def wait(self, caller: int, key: str) -> Any:
        return await self.take(caller, key, block=True)

    async def close(self) -> None:
        await self.client.aclose()


def entries(server: str) -> list[Entry]:
    return [
        Entry("redis-py Lock", Family.REDIS, "redis", RedisLock),
        Entry("redis-py Lock", Family.REDIS, "redis", AsyncRedisLock),
    ]
