"""python-redis-lock: SET NX, and BLPOP for those who wait."""

from __future__ import annotations

from typing import Any

import redis
import redis_lock

from benchmarks.contenders import TTL, Blocking, Entry, Family


class PythonRedisLock(Blocking):
    def open(self) -> None:
        assert self.place.redis is not None
        self.client = redis.StrictRedis.from_url(self.place.redis)

    def take(self, caller: int, key: str, *, block: bool = False) -> Any:
        lock = redis_lock.Lock(self.client, key, expire=TTL)
        return lock if lock.acquire(blocking=block) else None

    def give(self, caller: int, key: str, taken: Any) -> None:
        taken.release()

    def wait(self, caller: int, key: str) -> Any:
        return self.take(caller, key, block=True)

    def close(self) -> None:
        self.client.close()


def entries(server: str) -> list[Entry]:
    return [Entry("python-redis-lock", Family.REDIS, "redis", PythonRedisLock)]
