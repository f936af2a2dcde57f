"""Counts what the drivers of an engine send, and how many connections they have."""

from __future__ import annotations

import threading
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.ext.asyncio import AsyncEngine

__all__ = ["Counter"]


class Counter:
    """Counts at the driver, because the library's statements pass SQLAlchemy's own events by.

    psycopg's listening session speaks through the protocol's calls and is counted as a connection
    only; asyncpg's is counted in full.
    """

    def __init__(self, engine: Engine | AsyncEngine) -> None:
        self.statements = 0
        self.open = 0
        self.most_open = 0
        self._mutex = threading.Lock()
        driver = engine.dialect.driver
        target = engine.sync_engine if isinstance(engine, AsyncEngine) else engine
        event.listen(target, "connect", lambda connection, _: self._connected(driver, connection))
        for ending in ("close", "invalidate", "detach", "close_detached"):
            event.listen(target.pool, ending, self._closed)

    def _connected(self, driver: str, connection: Any) -> None:
        with self._mutex:
            self.open += 1
            self.most_open = max(self.most_open, self.open)
        _OBSERVERS[driver](connection, self)

    def _closed(self, *_: Any) -> None:
        with self._mutex:
            self.open -= 1

    def count(self, *_: Any) -> None:
        """Count one statement."""
        with self._mutex:
            self.statements += 1


def _psycopg(connection: Any, counter: Counter) -> None:
    raw = getattr(connection, "driver_connection", connection)
    base = raw.cursor_factory

    class CountingCursor(base):  # type: ignore[misc, valid-type]
        def execute(self, *arguments: Any, **options: Any) -> Any:
            counter.count()
            return super().execute(*arguments, **options)

    raw.cursor_factory = CountingCursor


def _asyncpg(connection: Any, counter: Counter) -> None:
    connection.driver_connection.add_query_logger(counter.count)


def _mysql(connection: Any, counter: Counter) -> None:
    raw = getattr(connection, "driver_connection", connection)
    query = raw.query

    def counted(*arguments: Any, **options: Any) -> Any:
        counter.count()
        return query(*arguments, **options)

    raw.query = counted


def _pysqlite(connection: Any, counter: Counter) -> None:
    connection.set_trace_callback(counter.count)


def _aiosqlite(connection: Any, counter: Counter) -> None:
    connection.run_async(lambda raw: raw.set_trace_callback(counter.count))


_OBSERVERS: dict[str, Any] = {
    "psycopg": _psycopg,
    "psycopg_async": _psycopg,
    "asyncpg": _asyncpg,
    "pymysql": _mysql,
    "aiomysql": _mysql,
    "pysqlite": _pysqlite,
    "aiosqlite": _aiosqlite,
}
