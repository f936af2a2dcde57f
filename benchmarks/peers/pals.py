"""PALs: advisory locks on a connection of SQLAlchemy's pool, checked out for as long as one is held."""

from __future__ import annotations

from typing import Any

import pals
from sqlalchemy import create_engine, make_url

from benchmarks.contenders import Blocking, Entry, Family, connections_for
from tests.servers import url_for


class Pals(Blocking):
    def open(self) -> None:
        url = url_for(make_url(self.place.url), "psycopg")
        size = connections_for(self.callers)
        self.locker: Any = pals.Locker(
            "benchmark", create_engine_callable=lambda: create_engine(url, pool_size=size, max_overflow=0)
        )

    def take(self, caller: int, key: str, *, block: bool = False) -> Any:
        lock = self.locker.lock(key, blocking=block)
        if lock.acquire():
            return lock
        lock.release()
        return None

    def give(self, caller: int, key: str, taken: Any) -> None:
        taken.release()

    def wait(self, caller: int, key: str) -> Any:
        return self.take(caller, key, block=True)

    def close(self) -> None:
        self.locker.engine.dispose()


def entries(server: str) -> list[Entry]:
    return [Entry("pals", Family.SESSION, "psycopg", Pals)] if server == "postgresql" else []
