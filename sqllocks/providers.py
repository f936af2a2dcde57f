"""The lease providers that users import: thin pairs over one core."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, ClassVar

from sqlalchemy import MetaData
from sqlalchemy.engine import Dialect

from sqllocks.backends.base import Capabilities, LeaseBackend
from sqllocks.backends.lease_table import LeaseTable
from sqllocks.core.leases import Leases
from sqllocks.diagnosis import IN_MEMORY, Diagnosis
from sqllocks.fencing import Guards, MemoryGuards
from sqllocks.forms import AsyncioForm, BlockingForm
from sqllocks.model import Seconds
from sqllocks.policy import checked_wait
from sqllocks.runtime.asynchronous import AsyncioBackground, AsyncioClock
from sqllocks.runtime.binding import async_engine_for, engine_for
from sqllocks.runtime.blocking import BlockingBackground, BlockingClock, BlockingSessions, drive
from sqllocks.runtime.combining_asyncio import AsyncioCombiner
from sqllocks.runtime.combining_blocking import BlockingCombiner
from sqllocks.runtime.diagnosing import CLINIC
from sqllocks.runtime.everyone import EVERYONE
from sqllocks.runtime.pins import FormPins, asyncio_finish
from sqllocks.runtime.rooms import AsyncioRoom, BlockingRoom, MemoryRoom, private_memory
from sqllocks.runtime.sessions_asyncio import AsyncioSessions
from sqllocks.schema import TABLE_NAME, core_locks
from sqllocks.transactional import TransactionHolds, on_asyncio_connection, on_blocking_connection

__all__ = ["AsyncMemoryLockProvider", "AsyncSqlLockProvider", "MemoryLockProvider", "SqlLockProvider"]


SHARED_STATEMENTS = 1
"""Statements with the calls of several callers that are in flight at once."""


class SqlLockProvider(BlockingForm):
    """Leases in the table ``core_locks`` of a PostgreSQL, MySQL, MariaDB or SQLite database.

    ``bind`` is a ``sessionmaker``, an ``Engine`` or a URL; its pool is never used, at most two
    connections of the library's own are. ``namespace`` goes before each key in the table, ``holder``
    is the label that people see (host and process id where it is left out), ``table`` and ``schema``
    say where the table is. Safe to use from several threads.

    The database's clock decides, and no test can move it: use ``MemoryLockProvider(clock=…)`` there,
    or a short ttl.
    """

    _caller: ClassVar[str] = "SqlLockProvider"
    """What messages call it, also where a class of the library derives from it."""

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
        engine = engine_for(bind, caller=self._caller)
        self._dialect = engine.dialect.name
        locks = core_locks(MetaData(), name=table, schema=schema)
        self._sessions = BlockingSessions(engine, locks)
        self._room = room = BlockingRoom(bind, engine, locks)
        backend: LeaseBackend = LeaseTable(self._sessions, _capabilities(engine.dialect.name, table, schema))
        if combine:
            backend = BlockingCombiner(backend, limit=SHARED_STATEMENTS)
        clock = BlockingClock()
        self._leases = Leases(
            clock,
            backend,
            namespace=namespace,
            holder=holder,
            lines=room.lines,
            wakeups=room.wakeups,
        )
        self._holding = self._leases.holding(BlockingBackground())
        self._guards = _guards(
            engine.dialect, table, schema, namespace, FormPins(self._leases.pinning, drive)
        )
        self._transactions = TransactionHolds(
            clock,
            self._leases,
            self._holding,
            self._guards,
            on_connection=on_blocking_connection,
            finish=drive,
        )

    def diagnose(self) -> Diagnosis:
        return Diagnosis(tuple(drive(CLINIC.examine(self._sessions))))

    def close(self, timeout: Seconds | None = 10) -> None:
        longest = checked_wait(timeout)
        drive(self._holding.close(longest))
        self._sessions.close(longest)
        self._room.close()


class AsyncSqlLockProvider(AsyncioForm):
    """Leases in the table ``core_locks`` of a PostgreSQL, MySQL, MariaDB or SQLite database.

    ``bind`` is an ``async_sessionmaker``, an ``AsyncEngine`` or a URL; its pool is never used, at most
    two connections of the library's own are. ``namespace`` goes before each key in the table,
    ``holder`` is the label that people see (host and process id where it is left out), ``table`` and
    ``schema`` say where the table is. Belongs to the event loop of its first use.

    The database's clock decides, and no test can move it: use ``AsyncMemoryLockProvider(clock=…)``
    there, or a short ttl.
    """

    _caller: ClassVar[str] = "AsyncSqlLockProvider"
    """What messages call it, also where a class of the library derives from it."""

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
        engine = async_engine_for(bind, caller=self._caller)
        self._dialect = engine.dialect.name
        clock = AsyncioClock()
        locks = core_locks(MetaData(), name=table, schema=schema)
        self._sessions = AsyncioSessions(engine, locks, clock)
        self._room = room = AsyncioRoom(bind, engine, locks)
        backend: LeaseBackend = LeaseTable(self._sessions, _capabilities(engine.dialect.name, table, schema))
        self._combiner: AsyncioCombiner | None = None
        if combine:
            backend = self._combiner = AsyncioCombiner(backend, limit=SHARED_STATEMENTS)
        self._background = AsyncioBackground()
        self._leases = Leases(
            clock, backend, namespace=namespace, holder=holder, lines=room.lines, wakeups=room.wakeups
        )
        self._holding = self._leases.holding(self._background)
        finish = asyncio_finish(clock)
        pins = FormPins(self._leases.pinning, finish)
        self._guards = _guards(engine.dialect, table, schema, namespace, pins)
        self._transactions = TransactionHolds(
            clock,
            self._leases,
            self._holding,
            self._guards,
            on_connection=on_asyncio_connection,
            finish=finish,
        )

    async def diagnose(self) -> Diagnosis:
        return Diagnosis(tuple(await CLINIC.examine(self._sessions)))

    async def aclose(self, timeout: Seconds | None = 10) -> None:
        longest = checked_wait(timeout)
        await self._holding.close(longest)
        await self._background.stop()
        if self._combiner is not None:
            await self._combiner.settle(longest)
        await self._sessions.close(longest)
        await self._room.close()


class MemoryLockProvider(BlockingForm):
    """Leases in the memory of this object: for tests and for programs that are one process.

    It never excludes another process. ``clock`` returns the present ``datetime`` (a naive one is read
    as UTC), so that a test can move time. Safe to use from several threads.
    """

    def __init__(self, *, clock: Callable[[], datetime] | None = None) -> None:
        room, local = self._find(clock), BlockingClock()
        self._leases = Leases(local, room.backend, namespace=room.namespace, lines=room.lines)
        self._holding = self._leases.holding(BlockingBackground())
        self._guards = MemoryGuards(room.backend, namespace=room.namespace)
        self._transactions = TransactionHolds(
            local,
            self._leases,
            self._holding,
            self._guards,
            on_connection=on_blocking_connection,
            finish=drive,
        )

    def diagnose(self) -> Diagnosis:
        return IN_MEMORY

    def close(self, timeout: Seconds | None = 10) -> None:
        drive(self._holding.close(checked_wait(timeout)))

    def _find(self, clock: Callable[[], datetime] | None) -> MemoryRoom:
        return private_memory(clock=clock)


class AsyncMemoryLockProvider(AsyncioForm):
    """Leases in the memory of this object: for tests and for programs that are one process.

    It never excludes another process. ``clock`` returns the present ``datetime`` (a naive one is read
    as UTC), so that a test can move time. Safe to use from several threads.
    """

    def __init__(self, *, clock: Callable[[], datetime] | None = None) -> None:
        room, local = self._find(clock), AsyncioClock()
        self._clock = local
        self._background = AsyncioBackground()
        self._leases = Leases(local, room.backend, namespace=room.namespace, lines=room.lines)
        self._holding = self._leases.holding(self._background)
        self._guards = MemoryGuards(room.backend, namespace=room.namespace)
        self._transactions = TransactionHolds(
            local,
            self._leases,
            self._holding,
            self._guards,
            on_connection=on_asyncio_connection,
            finish=asyncio_finish(local),
        )

    async def diagnose(self) -> Diagnosis:
        return IN_MEMORY

    async def aclose(self, timeout: Seconds | None = 10) -> None:
        longest = checked_wait(timeout)
        await self._clock.settle(longest)
        await self._holding.close(longest)
        await self._background.stop()

    def _find(self, clock: Callable[[], datetime] | None) -> MemoryRoom:
        return private_memory(clock=clock)


def _capabilities(dialect: str, table: str, schema: str | None) -> Capabilities:
    return Capabilities(single_writer=dialect == "sqlite", table=f"{schema}.{table}" if schema else table)


def _guards(dialect: Dialect, table: str, schema: str | None, namespace: str, pins: FormPins) -> Guards:
    # handles of the default table are also guarded by the function, which does not know the provider
    EVERYONE.join(pins)
    return Guards(table=table, schema=schema, namespace=namespace, pins=pins, dialect=dialect)
