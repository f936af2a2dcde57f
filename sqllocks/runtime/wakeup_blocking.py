"""The listening session of the blocking form: one daemon thread, while somebody waits."""

from __future__ import annotations

import selectors
import socket
import threading
from contextlib import suppress

from sqlalchemy import Connection, Engine, create_engine

from sqllocks.runtime.blocking import drive
from sqllocks.runtime.statements import Faults
from sqllocks.runtime.wakeup import Channel, Hub
from sqllocks.runtime.wakeup_psycopg import PsycopgTalk

__all__ = ["BlockingHub"]

DRIVERS = frozenset({"psycopg"})
"""Other drivers of the blocking form do not tell of notifications without being asked."""
CLOSE_PATIENCE = 2.0
"""Seconds for which a session may say goodbye."""


class BlockingHub(Hub):
    """Runs the session on a daemon thread, which ends a few seconds after the last waiter has gone."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(usable=engine.dialect.driver in DRIVERS)
        self._engine = engine
        self._faults = Faults(engine.url)
        self._thread: threading.Thread | None = None

    def close(self) -> None:
        """Close the session unless somebody waits; blocks while it is being closed."""
        thread = self._thread
        if self._end() and thread is not None and thread is not threading.current_thread():
            thread.join(CLOSE_PATIENCE)

    def _new_channel(self) -> Channel:
        return _PsycopgChannel(self._engine)

    def _start(self, channel: Channel) -> None:
        thread = threading.Thread(
            target=lambda: drive(self.serve(channel)), name="sqllocks-listener", daemon=True
        )
        self._thread = thread
        thread.start()

    def _message(self, error: Exception) -> str:
        return self._faults.fault(error, sent=True).message


class _PsycopgChannel(PsycopgTalk):
    """A psycopg connection, and a pair of sockets by which other threads wake the one that listens."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self._parent = engine
        self._engine: Engine | None = None
        self._connection: Connection | None = None
        self._mutex = threading.Lock()
        self._bell, self._ear = socket.socketpair()
        self._bell.setblocking(False)
        self._ear.setblocking(False)

    async def open(self) -> bool:
        self._engine = create_engine(self._parent.url, pool=self._parent.pool.recreate())
        connection = self._engine.connect()
        self._connection = connection
        connection.execution_options(isolation_level="AUTOCOMMIT")
        return await self.begin(connection.connection.dbapi_connection)

    async def wait(self, seconds: float) -> None:
        if self._payloads:
            return
        with selectors.DefaultSelector() as selector:
            selector.register(self._ear, selectors.EVENT_READ)
            if self._pgconn is not None:
                selector.register(self._pgconn.socket, selectors.EVENT_READ)
            selector.select(seconds)
        with suppress(BlockingIOError):
            self._ear.recv(4096)
        if self._pgconn is not None:
            self._read()

    def poke(self) -> None:
        # a full pipe wakes as well; the mutex keeps the number of a closed socket from being used
        with self._mutex, suppress(BlockingIOError, OSError):
            self._bell.send(b"!")

    async def close(self) -> None:
        self._pgconn = None
        self._payloads = []
        connection, self._connection = self._connection, None
        engine, self._engine = self._engine, None
        if connection is not None:
            with suppress(Exception):
                connection.invalidate()
            with suppress(Exception):
                connection.close()
        if engine is not None:
            engine.dispose()

    def end(self) -> None:
        with self._mutex:
            self._bell.close()
            self._ear.close()

    async def _moved(self, seconds: float, *, writing: bool) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._pgconn.socket, selectors.EVENT_WRITE if writing else selectors.EVENT_READ)
            selector.select(seconds)
