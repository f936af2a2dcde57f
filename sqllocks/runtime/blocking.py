"""The blocking port: the core runs in the caller's thread and never suspends."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from sqlalchemy import Engine, Table

from sqllocks.dialects import leases_for
from sqllocks.dialects.base import Fault, FaultKind, LeaseDialect, Parameters, Result, Statement
from sqllocks.runtime import clock
from sqllocks.runtime.binding import connection_limit
from sqllocks.runtime.drivers import run_blocking
from sqllocks.runtime.kept import Shelf
from sqllocks.runtime.statements import Compiler, Faults

__all__ = ["BlockingClock", "BlockingSessions", "drive"]

T = TypeVar("T")


def drive(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine of the core to its end in this thread; over a blocking port it cannot suspend."""
    try:
        work.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    work.close()
    raise AssertionError("the core waited for an event loop in the blocking form")


class BlockingClock:
    """Local time and waiting of the blocking form."""

    def now(self) -> float:
        return clock.now()

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - blocking is the point

    async def shielded(self, work: Coroutine[Any, Any, T]) -> T | None:
        return await work


class _Session:
    """One autocommit connection and what is needed to speak on it."""

    def __init__(self, engine: Engine, table: Table, faults: Faults, compiler: Compiler) -> None:
        self._faults = faults
        self._compiler = compiler
        self.used_at = 0.0
        try:
            self._connection = engine.connect()
        except Exception as error:
            raise faults.fault(error, sent=False) from error
        try:
            self._driver: Any = self._connection.connection.dbapi_connection
            self.sql: LeaseDialect = leases_for(engine.dialect, table)
            for text in self.sql.session_setup():
                self._run(text, ())
        except BaseException:
            self.discard()
            raise

    async def query(self, statement: Statement, parameters: Parameters) -> Result:
        return self._run(*self._compiler(statement, parameters))

    def _run(self, text: str, arguments: Any) -> Result:
        try:
            return run_blocking(self._driver, text, arguments)
        except Exception as error:
            raise self._faults.fault(error, sent=True) from error

    def discard(self) -> None:
        """Close the connection for real."""
        with suppress(Exception):
            self._connection.invalidate()
        with suppress(Exception):
            self._connection.close()


class BlockingSessions:
    """At most two lease connections, opened when needed and kept while they work."""

    def __init__(self, engine: Engine, table: Table) -> None:
        self._engine = engine
        self._table = table
        self._faults = Faults(engine.url)
        self._compiler = Compiler(engine.dialect)
        self._shelf: Shelf[_Session] = Shelf()
        self._mutex = threading.Lock()
        self._slots = threading.Semaphore(connection_limit(engine.pool))

    @asynccontextmanager
    async def session(self) -> AsyncGenerator[_Session, None]:
        """Borrow a connection; blocks while both are in use by other threads."""
        self._forget_after_fork()
        with self._slots:
            session = self._take()
            try:
                yield session
            except Fault as fault:
                # the server answered and undid the statement: the connection is as good as before
                if fault.kind is FaultKind.CONFLICT:
                    self._keep(session)
                else:
                    session.discard()
                raise
            except BaseException:
                session.discard()
                raise
            self._keep(session)

    def close(self) -> None:
        """Close all connections; a later call opens new ones."""
        self._forget_after_fork()
        with self._mutex:
            idle = self._shelf.empty()
        for session in idle:
            session.discard()
        self._engine.dispose()

    def _take(self) -> _Session:
        with self._mutex:
            session, stale = self._shelf.take()
        for old in stale:
            old.discard()
        return session or _Session(self._engine, self._table, self._faults, self._compiler)

    def _keep(self, session: _Session) -> None:
        with self._mutex:
            self._shelf.put(session)

    def _forget_after_fork(self) -> None:
        if self._shelf.forked():
            self._mutex = threading.Lock()
            self._slots = threading.Semaphore(connection_limit(self._engine.pool))
            self._engine.dispose(close=False)
