"""The lease providers that users import: thin pairs over one core."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from sqlalchemy import MetaData

from sqllocks.backends.base import Capabilities
from sqllocks.backends.lease_table import LeaseTable
from sqllocks.backends.memory import MemoryLeases
from sqllocks.core.leases import Leases
from sqllocks.model import LockHandle, LockInfo, Seconds
from sqllocks.policy import checked_wait
from sqllocks.protocols import AsyncLockProvider, LockProvider
from sqllocks.runtime.asynchronous import AsyncioClock, AsyncioSessions
from sqllocks.runtime.binding import async_engine_for, engine_for
from sqllocks.runtime.blocking import BlockingClock, BlockingSessions, drive
from sqllocks.schema import TABLE_NAME, core_locks

__all__ = ["AsyncMemoryLockProvider", "AsyncSqlLockProvider", "MemoryLockProvider", "SqlLockProvider"]


class _Blocking(LockProvider):
    """The blocking form over the core."""

    _leases: Leases

    def acquire(self, lock_key: str, *, ttl: Seconds, owner_token: str | None = None) -> LockHandle:
        return drive(self._leases.acquire(lock_key, ttl=ttl, owner_token=owner_token))

    def require_acquire(
        self, lock_key: str, *, ttl: Seconds, owner_token: str | None = None, wait: Seconds | None = 0
    ) -> LockHandle:
        return drive(self._leases.require_acquire(lock_key, ttl=ttl, owner_token=owner_token, wait=wait))

    def release(self, lock_key: str, *, owner_token: str) -> bool:
        return drive(self._leases.release(lock_key, owner_token=owner_token))

    def extend(self, lock_key: str, *, owner_token: str, ttl: Seconds) -> LockHandle | None:
        return drive(self._leases.extend(lock_key, owner_token=owner_token, ttl=ttl))

    def locked(self, lock_key: str) -> bool:
        return drive(self._leases.locked(lock_key))

    def inspect(self, lock_key: str) -> LockInfo | None:
        return drive(self._leases.inspect(lock_key))

    def list_locks(self, *, prefix: str = "") -> list[LockInfo]:
        return drive(self._leases.list_locks(prefix=prefix))

    def break_lock(self, lock_key: str) -> bool:
        return drive(self._leases.break_lock(lock_key))

    def create_table(self) -> None:
        drive(self._leases.create_table())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Asyncio(AsyncLockProvider):
    """The asyncio form over the core."""

    _leases: Leases

    async def acquire(self, lock_key: str, *, ttl: Seconds, owner_token: str | None = None) -> LockHandle:
        return await self._leases.acquire(lock_key, ttl=ttl, owner_token=owner_token)

    async def require_acquire(
        self, lock_key: str, *, ttl: Seconds, owner_token: str | None = None, wait: Seconds | None = 0
    ) -> LockHandle:
        return await self._leases.require_acquire(lock_key, ttl=ttl, owner_token=owner_token, wait=wait)

    async def release(self, lock_key: str, *, owner_token: str) -> bool:
        return await self._leases.release(lock_key, owner_token=owner_token)

    async def extend(self, lock_key: str, *, owner_token: str, ttl: Seconds) -> LockHandle | None:
        return await self._leases.extend(lock_key, owner_token=owner_token, ttl=ttl)

    async def locked(self, lock_key: str) -> bool:
        return await self._leases.locked(lock_key)

    async def inspect(self, lock_key: str) -> LockInfo | None:
        return await self._leases.inspect(lock_key)

    async def list_locks(self, *, prefix: str = "") -> list[LockInfo]:
        return await self._leases.list_locks(prefix=prefix)

    async def break_lock(self, lock_key: str) -> bool:
        return await self._leases.break_lock(lock_key)

    async def create_table(self) -> None:
        await self._leases.create_table()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class SqlLockProvider(_Blocking):
    """Leases in the table ``core_locks`` of a PostgreSQL, MySQL, MariaDB or SQLite database.

    ``bind`` is a ``sessionmaker``, an ``Engine`` or a URL; its pool is never used, at most two
    connections of the library's own are. ``namespace`` goes before each key in the table, ``holder``
    is the label that people see (host and process id where it is left out), ``table`` and ``schema``
    say where the table is. Safe to use from several threads.
    """

    def __init__(
        self,
        bind: Any,
        *,
        namespace: str = "",
        holder: str | None = None,
        table: str = TABLE_NAME,
        schema: str | None = None,
        combine: bool = True,
    ) -> None:
        engine = engine_for(bind, caller=type(self).__name__)
        self._sessions = BlockingSessions(engine, core_locks(MetaData(), name=table, schema=schema))
        backend = LeaseTable(self._sessions, _capabilities(engine.dialect.name, table, schema))
        self._leases = Leases(BlockingClock(), backend, namespace=namespace, holder=holder)

    def close(self, timeout: Seconds | None = None) -> None:
        checked_wait(timeout)
        self._sessions.close()


class AsyncSqlLockProvider(_Asyncio):
    """Leases in the table ``core_locks`` of a PostgreSQL, MySQL, MariaDB or SQLite database.

    ``bind`` is an ``async_sessionmaker``, an ``AsyncEngine`` or a URL; its pool is never used, at most
    two connections of the library's own are. ``namespace`` goes before each key in the table,
    ``holder`` is the label that people see (host and process id where it is left out), ``table`` and
    ``schema`` say where the table is. Belongs to the event loop of its first use.
    """

    def __init__(
        self,
        bind: Any,
        *,
        namespace: str = "",
        holder: str | None = None,
        table: str = TABLE_NAME,
        schema: str | None = None,
        combine: bool = True,
    ) -> None:
        engine = async_engine_for(bind, caller=type(self).__name__)
        clock = AsyncioClock()
        self._sessions = AsyncioSessions(engine, core_locks(MetaData(), name=table, schema=schema), clock)
        backend = LeaseTable(self._sessions, _capabilities(engine.dialect.name, table, schema))
        self._leases = Leases(clock, backend, namespace=namespace, holder=holder)

    async def aclose(self, timeout: Seconds | None = None) -> None:
        await self._sessions.close(checked_wait(timeout))


class MemoryLockProvider(_Blocking):
    """Leases in the memory of this object: for tests and for programs that are one process.

    It never excludes another process. ``clock`` returns the present ``datetime`` (a naive one is read
    as UTC), so that a test can move time. Safe to use from several threads.
    """

    def __init__(self, *, clock: Callable[[], datetime] | None = None) -> None:
        self._leases = Leases(BlockingClock(), MemoryLeases(clock))

    def close(self, timeout: Seconds | None = None) -> None:
        checked_wait(timeout)


class AsyncMemoryLockProvider(_Asyncio):
    """Leases in the memory of this object: for tests and for programs that are one process.

    It never excludes another process. ``clock`` returns the present ``datetime`` (a naive one is read
    as UTC), so that a test can move time. Safe to use from several threads.
    """

    def __init__(self, *, clock: Callable[[], datetime] | None = None) -> None:
        self._leases = Leases(AsyncioClock(), MemoryLeases(clock))

    async def aclose(self, timeout: Seconds | None = None) -> None:
        checked_wait(timeout)


def _capabilities(dialect: str, table: str, schema: str | None) -> Capabilities:
    return Capabilities(single_writer=dialect == "sqlite", table=f"{schema}.{table}" if schema else table)
