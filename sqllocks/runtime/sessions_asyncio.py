"""The sessions of the asyncio form: connections of SQLAlchemy, spoken to through their driver."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, Self, TypeVar

from sqlalchemy import Table
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from sqllocks.dialects import leases_for
from sqllocks.dialects.base import REFUSALS, Fault, LeaseDialect, Parameters, Result, Statement
from sqllocks.dialects.guards import CLUSTER_QUESTION, is_clustered, note_cluster
from sqllocks.runtime import clock
from sqllocks.runtime.asynchronous import AsyncioClock, OneLoop
from sqllocks.runtime.binding import connection_limit
from sqllocks.runtime.drivers import async_runner
from sqllocks.runtime.kept import MAX_IDLE, inherit
from sqllocks.runtime.statements import Compiler, Faults

__all__ = ["AsyncioSession", "AsyncioSessions", "Speech"]

T = TypeVar("T")
D = TypeVar("D", bound=LeaseDialect)

CANCEL_PATIENCE = 1.0
"""Seconds a cancelled caller waits for the statement in flight, so that its outcome is known."""


class Speech:
    """What the sessions of one engine have in common."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.runner = async_runner(engine.dialect.driver)
        self.faults = Faults(engine.url)
        self.compiler = Compiler(engine.dialect)


class AsyncioSession(Generic[D]):
    """One autocommit connection and what is needed to speak on it."""

    def __init__(self, connection: AsyncConnection, driver: Any, sql: D, shared: Speech) -> None:
        self._connection = connection
        self.driver = driver
        self._shared = shared
        self.sql = sql
        self.used_at = 0.0
        self.locked: set[str] = set()
        self.broken = False

    @classmethod
    async def open(
        cls, engine: AsyncEngine, speak: Callable[[Dialect], Any], shared: Speech, clock: AsyncioClock
    ) -> Self:
        """Connect, or raise ``Fault``."""
        try:
            connection = await engine.connect()
        except Exception as error:
            raise shared.faults.fault(error, sent=False) from error
        try:
            await _autocommit(connection, shared.faults)
            driver = (await connection.get_raw_connection()).driver_connection
            session = cls(connection, driver, speak(engine.dialect), shared)
            for text in session.sql.session_setup():
                await session.run(text, (), rows=False)
            if is_clustered(engine.dialect) is None:
                note_cluster(engine.dialect, (await session.query(CLUSTER_QUESTION, {})).rows)
        except BaseException:
            await clock.shielded(_drop(connection))
            raise
        return session

    def query(self, statement: Statement, parameters: Parameters) -> Coroutine[Any, Any, Result]:
        return self.run(*self._shared.compiler(statement, parameters), rows=statement.rows)

    async def run(self, text: str, arguments: Any, *, rows: bool) -> Result:
        """Run one statement; a cancelled caller still waits a moment for its end."""
        loop = asyncio.get_running_loop()
        # not asyncio.shield(), which takes one more turn of the loop
        answered: asyncio.Future[Result] = loop.create_future()
        task = _begin(loop, self._answer(answered, text, arguments, rows=rows))
        try:
            return await answered
        except asyncio.CancelledError:
            await self._finish(task)
            if answered.done() and not answered.cancelled():
                answered.exception()  # it came too late to be raised
            raise
        except Exception as error:
            raise self._shared.faults.fault(error, sent=True) from error

    async def _answer(
        self, answered: asyncio.Future[Result], text: str, arguments: Any, *, rows: bool
    ) -> bool:
        """Run a statement for a caller who may go away meanwhile; return whether it was carried out."""
        try:
            result = await self._shared.runner(self.driver, text, arguments, rows)
        except asyncio.CancelledError:
            answered.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - it is raised in the caller
            if not answered.done():
                answered.set_exception(error)
            return False
        if not answered.done():
            answered.set_result(result)
        return True

    async def _finish(self, task: asyncio.Future[bool]) -> None:
        """A statement cut off in the middle would leave its answer to the next one on this connection."""
        self.broken = True
        limit = clock.now() + CANCEL_PATIENCE
        try:
            while not task.done() and clock.now() < limit:
                # the first cancellation is on its way; a further one must not cut the statement off
                with suppress(asyncio.CancelledError):
                    await asyncio.wait({task}, timeout=limit - clock.now())
        finally:
            if task.done() and not task.cancelled() and task.exception() is None:
                self.broken = not task.result()
            else:
                task.add_done_callback(_retrieve)
                task.cancel()

    async def discard(self) -> None:
        """Close the connection for real."""
        await _drop(self._connection)


class AsyncioSessions:
    """At most two lease connections, opened when needed and kept while they work."""

    def __init__(self, engine: AsyncEngine, table: Table, clock: AsyncioClock) -> None:
        self._engine = engine
        self._table = table
        self._clock = clock
        self._loop = OneLoop()
        self._pid = os.getpid()
        self._idle: list[AsyncioSession[LeaseDialect]] = []
        self._slots = asyncio.Semaphore(connection_limit(engine.pool))
        self._speech = Speech(engine)
        self._sql: LeaseDialect | None = None

    async def use(self, work: Callable[[AsyncioSession[LeaseDialect]], Coroutine[Any, Any, T]]) -> T:
        """Do ``work`` on a connection; waits while all are in use by other tasks."""
        self._loop.check()
        self._forget_after_fork()
        async with self._slots:
            session = self._kept() or await self._opened()
            try:
                answer = await work(session)
            except GeneratorExit:
                self._keep(session)  # nothing may be awaited here
                raise
            except BaseException as error:
                if self._usable(session, error):
                    self._keep(session)
                else:
                    await self._clock.shielded(session.discard())
                raise
            self._keep(session)
            return answer

    async def close(self, timeout: float | None = None) -> None:
        """Finish clean-ups and close all connections; a later call opens new ones."""
        self._loop.check()
        self._forget_after_fork()
        await self._clock.settle(timeout)
        while self._idle:
            await self._idle.pop().discard()
        await self._engine.dispose()

    def _kept(self) -> AsyncioSession[LeaseDialect] | None:
        # the last one used, so that spare ones grow old
        if self._idle and clock.now() - self._idle[-1].used_at <= MAX_IDLE:
            return self._idle.pop()
        return None

    async def _opened(self) -> AsyncioSession[LeaseDialect]:
        while self._idle:
            await self._idle.pop().discard()  # idle for too long
        return await AsyncioSession[LeaseDialect].open(self._engine, self._speak, self._speech, self._clock)

    @staticmethod
    def _usable(session: AsyncioSession[LeaseDialect], error: BaseException) -> bool:
        if isinstance(error, Fault):
            # the server answered and undid the statement: the connection is as good as before
            return error.kind in REFUSALS
        return isinstance(error, asyncio.CancelledError) and not session.broken

    def _speak(self, dialect: Dialect) -> LeaseDialect:
        # once: the compiler knows the statements by their identity
        if self._sql is None:
            self._sql = leases_for(dialect, self._table)
        return self._sql

    def _keep(self, session: AsyncioSession[LeaseDialect]) -> None:
        session.used_at = clock.now()
        self._idle.append(session)

    def _forget_after_fork(self) -> None:
        if self._pid != os.getpid():
            inherit(self._idle)
            self._pid, self._idle = os.getpid(), []
            self._slots = asyncio.Semaphore(connection_limit(self._engine.pool))
            self._engine.sync_engine.dispose(close=False)


async def _autocommit(connection: AsyncConnection, faults: Faults) -> None:
    try:
        await connection.execution_options(isolation_level="AUTOCOMMIT")
    except Exception as error:
        raise faults.fault(error, sent=False) from error


async def _drop(connection: AsyncConnection) -> None:
    with suppress(Exception):
        await connection.invalidate()
    with suppress(Exception):
        await connection.close()


def _begin(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start a task, at once where Python can (3.12): its first step need not wait for a turn of the loop."""
    if sys.version_info >= (3, 12):
        return asyncio.Task(work, loop=loop, eager_start=True)
    return loop.create_task(work)


def _retrieve(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()
