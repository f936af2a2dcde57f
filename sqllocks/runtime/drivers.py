"""One statement on a driver's own connection: SQLAlchemy opened it, and is not in the way here.

The connection that SQLAlchemy calls ``driver_connection`` is public; going through it saves what
SQLAlchemy's execution adds to each call. asyncpg's ``fetch`` also parses and runs an unnamed statement
at once where its cache is off, as a transaction pooler needs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from sqllocks.dialects.base import Result
from sqllocks.errors import BackendUnsupported

# Any: drivers share no common type, and each is an optional dependency
__all__ = ["async_runner", "run_blocking"]

AsyncRunner = Callable[[Any, str, Any, bool], Awaitable[Result]]


def run_blocking(connection: Any, sql: str, arguments: Any, rows: bool) -> Result:
    """Run one statement on a PEP 249 connection; ``rows`` tells whether it answers with rows.

    To ask the cursor for its ``description`` costs psycopg 5 µs, a fifth of the statement.
    """
    cursor = connection.cursor()
    try:
        cursor.execute(sql, arguments)
        told = cursor.fetchall() if rows else ()
        return Result(told, cursor.rowcount, getattr(cursor, "lastrowid", None) or 0)
    finally:
        cursor.close()


def async_runner(driver: str) -> AsyncRunner:
    """Return how a statement runs on the asyncio driver with that SQLAlchemy name."""
    try:
        return _RUNNERS[driver]
    except KeyError:
        raise BackendUnsupported(
            f"sqllocks does not know the asyncio driver {driver!r}; use one of {', '.join(_RUNNERS)}"
        ) from None


async def _asyncpg(connection: Any, sql: str, arguments: Any, rows: bool) -> Result:
    return Result(await connection.fetch(sql, *arguments), -1)


async def _with_cursor(connection: Any, sql: str, arguments: Any, rows: bool) -> Result:
    async with connection.cursor() as cursor:
        await cursor.execute(sql, arguments)
        told = await cursor.fetchall() if rows else ()
        return Result(told, cursor.rowcount)


async def _mysql(connection: Any, sql: str, arguments: Any, rows: bool) -> Result:
    async with connection.cursor() as cursor:
        await cursor.execute(sql, arguments)
        told = await cursor.fetchall() if rows else ()
        return Result(told, cursor.rowcount, getattr(cursor, "lastrowid", None) or 0)


async def _aiosqlite(connection: Any, sql: str, arguments: Any, rows: bool) -> Result:
    async with connection.execute(sql, arguments) as cursor:
        return Result(list(await cursor.fetchall()), cursor.rowcount)


_RUNNERS: dict[str, AsyncRunner] = {
    "asyncpg": _asyncpg,
    "psycopg": _with_cursor,
    "psycopg_async": _with_cursor,
    "aiomysql": _mysql,
    "asyncmy": _mysql,
    "aiosqlite": _aiosqlite,
}
