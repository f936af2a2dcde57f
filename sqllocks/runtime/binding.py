"""From what a caller passes as ``bind`` to an engine of the library's own."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, NoReturn, cast

from sqlalchemy import URL, Connection, Engine, create_engine, make_url
from sqlalchemy.exc import ArgumentError, InvalidRequestError, NoSuchModuleError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import AssertionPool, NullPool, Pool, QueuePool, SingletonThreadPool, StaticPool

from sqllocks.dialects import dialect_class
from sqllocks.errors import BackendUnsupported, LockValidationError

__all__ = ["async_engine_for", "connection_limit", "engine_for", "parsed"]

MAX_CONNECTIONS = 2
_ALIASES = {"postgres": "postgresql"}
# the first that is installed is used where a URL names none
_DRIVERS = {
    False: {
        "postgresql": ("psycopg", "psycopg2"),
        "mysql": ("pymysql", "MySQLdb"),
        "mariadb": ("pymysql", "MySQLdb"),
        "sqlite": ("sqlite3",),
    },
    True: {
        "postgresql": ("asyncpg", "psycopg"),
        "mysql": ("aiomysql", "asyncmy"),
        "mariadb": ("aiomysql", "asyncmy"),
        "sqlite": ("aiosqlite",),
    },
}
_DRIVER_NAMES = {"sqlite3": "pysqlite", "MySQLdb": "mysqldb"}
# the packages of drivers that no extra brings, by their names in a URL
_PACKAGES = {
    "asyncmy": "asyncmy",
    "cymysql": "cymysql",
    "mariadbconnector": "mariadb",
    "mysqlconnector": "mysql-connector-python",
    "mysqldb": "mysqlclient",
    "pg8000": "pg8000",
    "psycopg2": "psycopg2-binary",
    "psycopg2cffi": "psycopg2cffi",
}
_IN_MEMORY = {
    "SqlLockProvider": "MemoryLockProvider or create_provider",
    "SqlLocker": "MemoryLocker or create_locker",
    "SqlElector": "MemoryElector or create_elector",
    "AsyncSqlLockProvider": "AsyncMemoryLockProvider or create_async_provider",
    "AsyncSqlLocker": "AsyncMemoryLocker or create_async_locker",
    "AsyncSqlElector": "AsyncMemoryElector or create_async_elector",
}


def engine_for(bind: Any, *, caller: str) -> Engine:
    """Return an engine of the library's own for the blocking form.

    Its pool is a sibling of the application's: same connect arguments and listeners, other
    connections, so an exhausted application pool does not matter. AUTOCOMMIT is set on each
    connection: as an option of the engine it is set within ``connect()``, and a connection that
    breaks there is left to the garbage collector.
    """
    if isinstance(bind, sessionmaker):
        bind = _bind_of(bind.kw, "sessionmaker", "Engine")
    if isinstance(bind, str | URL):
        return cast("Engine", _from_url(bind, caller, asyncio=False))
    if isinstance(bind, AsyncEngine | async_sessionmaker):
        _wrong(bind, caller, f"use Async{caller.removeprefix('Async')} for it")
    if not isinstance(bind, Engine):
        _wrong(bind, caller, "pass a sessionmaker, an Engine or a URL")
    _check_url(bind.url)
    return create_engine(bind.url, pool=bind.pool.recreate())


def async_engine_for(bind: Any, *, caller: str) -> AsyncEngine:
    """Return the same as ``engine_for``, for the asyncio form."""
    if isinstance(bind, async_sessionmaker):
        bind = _bind_of(bind.kw, "async_sessionmaker", "AsyncEngine")
    if isinstance(bind, str | URL):
        return cast("AsyncEngine", _from_url(bind, caller, asyncio=True))
    if isinstance(bind, Engine | sessionmaker):
        _wrong(bind, caller, f"use {caller.removeprefix('Async')} for it")
    if not isinstance(bind, AsyncEngine):
        _wrong(bind, caller, "pass an async_sessionmaker, an AsyncEngine or a URL")
    _check_url(bind.url)
    return create_async_engine(bind.url, pool=bind.sync_engine.pool.recreate())


def connection_limit(pool: Pool) -> int:
    """Return how many connections may be out at once: at most 2, fewer where the pool has fewer."""
    if isinstance(pool, StaticPool | SingletonThreadPool | AssertionPool):
        return 1
    if isinstance(pool, QueuePool) and pool.size() > 0:
        return min(pool.size(), MAX_CONNECTIONS)
    return MAX_CONNECTIONS


def _bind_of(configuration: dict[str, Any], kind: str, wanted: str) -> Any:
    bind = configuration.get("bind")
    remedy = f"pass a {kind} with bind= one {wanted}, or the {wanted} itself"
    if configuration.get("binds"):
        raise LockValidationError(
            f"this {kind} has several binds, so the lock table has no clear place: {remedy}"
        )
    if bind is None:
        raise LockValidationError(f"this {kind} has no bind: {remedy}")
    if isinstance(bind, Connection | AsyncConnection):
        raise LockValidationError(
            f"this {kind} is bound to a Connection, and a lock must not depend on its transaction: {remedy}"
        )
    return bind


def _wrong(bind: Any, caller: str, remedy: str) -> NoReturn:
    hint = remedy
    if isinstance(bind, Session):
        hint = "pass the sessionmaker that made it, not a Session"
    raise TypeError(f"{caller} cannot be bound to a {type(bind).__name__}: {hint}")


def parsed(text: str | URL) -> URL:
    """Return the URL, or raise ``LockValidationError``, which never shows its password."""
    try:
        return make_url(text)
    except (ArgumentError, ValueError):
        # SQLAlchemy's message would repeat the text, password and all
        raise LockValidationError(
            "the database URL cannot be parsed; expected dialect[+driver]://user:password@host/database "
            "(write reserved characters of the password as %XX)"
        ) from None


def _from_url(text: str | URL, caller: str, *, asyncio: bool) -> Any:
    url = _with_driver(parsed(text), asyncio=asyncio)
    if url.drivername == "memory":
        remedy = f": use {_IN_MEMORY[caller]}" if caller in _IN_MEMORY else ""
        raise BackendUnsupported(f"memory:// is the memory of one process and no database{remedy}")
    _check_url(url)
    try:
        make = create_async_engine if asyncio else create_engine
        engine: Any = make(url, poolclass=NullPool)
    except ModuleNotFoundError as error:
        raise _no_driver(url, error.name or "", asyncio=asyncio) from error
    except NoSuchModuleError as error:
        raise BackendUnsupported(
            f"SQLAlchemy has no dialect {url.drivername!r}; use one of "
            f"{', '.join(_DRIVERS[asyncio][url.get_backend_name()])} as the driver"
        ) from error
    except ArgumentError as error:
        raise LockValidationError(f"the database URL is not accepted: {error}") from error
    except InvalidRequestError as error:
        raise LockValidationError(
            f"{url.drivername!r} is not an asyncio driver; leave the driver out, or use the blocking class"
        ) from error
    if not asyncio and engine.dialect.is_async:
        raise LockValidationError(
            f"{url.drivername!r} is an asyncio driver; leave the driver out, or use the Async class"
        )
    return engine


def _with_driver(url: URL, *, asyncio: bool) -> URL:
    name, _, driver = url.drivername.partition("+")
    name = _ALIASES.get(name, name)
    if driver or name not in _DRIVERS[asyncio]:
        return url.set(drivername=f"{name}+{driver}" if driver else name)
    modules = _DRIVERS[asyncio][name]
    found = next((module for module in modules if find_spec(module) is not None), None)
    if found is None:
        raise _no_driver(url.set(drivername=name), modules[0], asyncio=asyncio)
    return url.set(drivername=f"{name}+{_DRIVER_NAMES.get(found, found)}")


def _no_driver(url: URL, module: str, *, asyncio: bool) -> BackendUnsupported:
    backend = url.get_backend_name()
    package = _PACKAGES.get(url.drivername.partition("+")[2])
    if package is None:
        extra = "mysql" if backend == "mariadb" else backend
        remedy = f"pip install 'sqllocks[{extra}]'"
    else:
        usual = _DRIVERS[asyncio][backend][0]
        remedy = f"pip install {package}, or leave the driver out of the URL ({usual})"
    return BackendUnsupported(f"the driver {module!r} for {backend} is not installed: {remedy}")


def _check_url(url: URL) -> None:
    backend = url.get_backend_name()
    dialect_class(backend)
    if backend == "sqlite" and _in_memory(url):
        raise BackendUnsupported(
            "an in-memory SQLite database is private to one connection and excludes nobody: use "
            "MemoryLockProvider, or a database file"
        )


def _in_memory(url: URL) -> bool:
    database = url.database or ""
    return (
        database in ("", ":memory:")
        or database.startswith("file::memory:")
        or (database.startswith("file:") and "mode=memory" in database)
        or url.query.get("mode") == "memory"
    )
