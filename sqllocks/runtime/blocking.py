"""The blocking port: the core runs in the caller's thread and never suspends."""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, TypeVar

from sqlalchemy import Engine, Table
from sqlalchemy.engine import Dialect

from sqllocks.dialects import leases_for
from sqllocks.dialects.base import REFUSALS, Fault, LeaseDialect, Parameters, Result, Statement
from sqllocks.dialects.guards import CLUSTER_QUESTION, is_clustered, note_cluster
from sqllocks.runtime import clock
from sqllocks.runtime.binding import connection_limit
from sqllocks.runtime.drivers import run_blocking
from sqllocks.runtime.events import BlockingEvent
from sqllocks.runtime.kept import MAX_IDLE, inherit
from sqllocks.runtime.statements import Compiler, Faults

__all__ = ["BlockingBackground", "BlockingClock", "BlockingSession", "BlockingSessions", "drive"]

T = TypeVar("T")
D = TypeVar("D", bound=LeaseDialect)

logger = logging.getLogger("sqllocks")

RESTART_PAUSE = 0.1


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

    def event(self) -> BlockingEvent:
        return BlockingEvent()

    def alarm(self, seconds: float, ring: Callable[[], None]) -> threading.Timer:
        timer = threading.Timer(seconds, ring)
        timer.daemon = True
        timer.start()
        return timer

    async def shielded(self, work: Coroutine[Any, Any, T]) -> T | None:
        return await work


class BlockingBackground:
    """One daemon thread, started when there is something to do."""

    linger = 5.0

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._reset()

    def ensure(self, run: Callable[[], Coroutine[Any, Any, None]], busy: Callable[[], bool]) -> None:
        if self._pid != os.getpid():  # the thread stayed in the parent
            self._reset()
        with self._mutex:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._main, args=(run, busy), name="sqllocks-keeper", daemon=True
                )
                self._thread.start()

    def wake(self) -> None:
        self._event.set()

    async def pause(self, seconds: float) -> None:
        self._event.wait(min(seconds, threading.TIMEOUT_MAX))
        self._event.clear()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._mutex = threading.Lock()
        self._event = threading.Event()
        self._thread = None

    def _main(self, run: Callable[[], Coroutine[Any, Any, None]], busy: Callable[[], bool]) -> None:
        while True:
            try:
                drive(run())
            except Exception:
                logger.exception("the keeper of leases failed and starts again")
                time.sleep(RESTART_PAUSE)
            with self._mutex:
                if not busy():
                    self._thread = None
                    return


class BlockingSession(Generic[D]):
    """One autocommit connection and what is needed to speak on it; connects at once, or raises ``Fault``."""

    def __init__(
        self, engine: Engine, speak: Callable[[Dialect], D], faults: Faults, compiler: Compiler
    ) -> None:
        self._faults = faults
        self._compiler = compiler
        self.used_at = 0.0
        self.locked: set[str] = set()
        try:
            self._connection = engine.connect()
        except Exception as error:
            raise faults.fault(error, sent=False) from error
        try:
            self._autocommit()
            self.driver: Any = self._connection.connection.dbapi_connection
            self.sql: D = speak(engine.dialect)
            for text in self.sql.session_setup():
                self._run(text, (), rows=False)
            if is_clustered(engine.dialect) is None:
                note_cluster(engine.dialect, self._run(*compiler(CLUSTER_QUESTION, {}), rows=True).rows)
        except BaseException:
            self.discard()
            raise

    async def query(self, statement: Statement, parameters: Parameters) -> Result:
        return self._run(*self._compiler(statement, parameters), rows=statement.rows)

    def _autocommit(self) -> None:
        try:
            self._connection.execution_options(isolation_level="AUTOCOMMIT")
        except Exception as error:
            raise self._faults.fault(error, sent=False) from error

    def _run(self, text: str, arguments: Any, *, rows: bool) -> Result:
        try:
            return run_blocking(self.driver, text, arguments, rows)
        except Exception as error:
            raise self._faults.fault(error, sent=True) from error

    def discard(self) -> None:
        """Close the connection for real."""
        with suppress(Exception):
            self._connection.invalidate()
        with suppress(Exception):
            self._connection.close()


class _Lane:
    """Room for one connection, used by one thread at a time."""

    def __init__(self) -> None:
        # a plain lock: KeyboardInterrupt cannot strike inside its `with`, as it can in a Semaphore's
        self.lock = threading.Lock()
        self.session: BlockingSession[LeaseDialect] | None = None


class BlockingSessions:
    """At most two lease connections, opened when needed and kept while they work."""

    def __init__(self, engine: Engine, table: Table) -> None:
        self._engine = engine
        self._table = table
        self._faults = Faults(engine.url)
        self._compiler = Compiler(engine.dialect)
        self._sql: LeaseDialect | None = None
        self._turns = itertools.count()
        self._reset()

    async def use(self, work: Callable[[BlockingSession[LeaseDialect]], Coroutine[Any, Any, T]]) -> T:
        """Do ``work`` on a connection; blocks while all are in use by other threads."""
        self._forget_after_fork()
        lane = self._choose()
        with lane.lock:
            session = self._take(lane)
            good = False
            try:
                answer = await work(session)
                good = True
            except Fault as fault:
                # the server answered and undid the statement: the connection is as good as before
                good = fault.kind in REFUSALS
                raise
            finally:
                if good:
                    self._keep(lane, session)
                else:
                    session.discard()
            return answer

    def close(self, timeout: float | None = None) -> None:
        """Close all connections; one that is stuck in a statement past ``timeout`` is left to its user."""
        self._forget_after_fork()
        end = clock.now() + (threading.TIMEOUT_MAX if timeout is None else timeout)
        for lane in self._lanes:
            if not lane.lock.acquire(timeout=min(max(end - clock.now(), 0.0), threading.TIMEOUT_MAX)):
                continue
            try:
                if lane.session is not None:
                    lane.session.discard()
                    lane.session = None
            finally:
                lane.lock.release()
        self._engine.dispose()

    def _speak(self, dialect: Dialect) -> LeaseDialect:
        # once: the compiler knows the statements by their identity
        if self._sql is None:
            self._sql = leases_for(dialect, self._table)
        return self._sql

    def _choose(self) -> _Lane:
        free = next((lane for lane in self._lanes if not lane.lock.locked()), None)
        return free or self._lanes[next(self._turns) % len(self._lanes)]

    def _take(self, lane: _Lane) -> BlockingSession[LeaseDialect]:
        session, lane.session = lane.session, None
        if session is not None and clock.now() - session.used_at > MAX_IDLE:
            session.discard()
            session = None
        return session or BlockingSession(self._engine, self._speak, self._faults, self._compiler)

    def _keep(self, lane: _Lane, session: BlockingSession[LeaseDialect]) -> None:
        session.used_at = clock.now()
        lane.session = session

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lanes = [_Lane() for _ in range(connection_limit(self._engine.pool))]

    def _forget_after_fork(self) -> None:
        if self._pid != os.getpid():
            inherit(self._lanes)
            self._reset()
            self._engine.dispose(close=False)
