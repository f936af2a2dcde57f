"""tooz: advisory and named locks; opens a connection for each acquire."""

from __future__ import annotations

import warnings
from typing import Any

from tooz import coordination

from benchmarks.contenders import Blocking, Entry, Family


class Tooz(Blocking):
    def open(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            self.coordinator: Any = coordination.get_coordinator(self.place.url, b"benchmark")
        self.coordinator.start()

    def take(self, caller: int, key: str) -> Any:
        lock = self.coordinator.get_lock(key.encode())
        return lock if lock.acquire(blocking=False) else None

    def give(self, caller: int, key: str, taken: Any) -> None:
        taken.release()

    def wait(self, caller: int, key: str) -> Any:
        lock = self.coordinator.get_lock(key.encode())
        lock.acquire()
        return lock

    def close(self) -> None:
        self.coordinator.stop()


def entries(server: str) -> list[Entry]:
    drivers = {"postgresql": "psycopg2", "mysql": "pymysql", "mariadb": "pymysql"}
    if server not in drivers:
        return []
    return [Entry("tooz", Family.SESSION, drivers[server], Tooz, most=64)]
