"""The listening session of the asyncio form: one task on the loop, while somebody waits."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from sqllocks.dialects.postgresql_waiting import BACKEND, CHANNEL
from sqllocks.runtime.events import AsyncioEvent
from sqllocks.runtime.statements import Faults
from sqllocks.runtime.wakeup import ANSWER_PATIENCE, Channel, Hub
from sqllocks.runtime.wakeup_psycopg import PsycopgTalk

__all__ = ["AsyncioHub"]


CLOSE_PATIENCE = 2.0
"""Seconds for which a session may say goodbye."""


class AsyncioHub(Hub):
    """Runs the session on a task, which ends a few seconds after the last waiter has gone."""

    def __init__(self, engine: AsyncEngine) -> None:
        driver = _DRIVERS.get(engine.dialect.driver)
        super().__init__(usable=driver is not None)
        self._driver = driver
        self._engine = engine
        self._faults = Faults(engine.url)
        self._task: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Close the session unless somebody waits."""
        task = self._task
        if not self._end() or task is None:
            return
        await asyncio.wait({task}, timeout=CLOSE_PATIENCE)
        if not task.done():  # it may be connecting
            task.cancel()
            await asyncio.wait({task})

    def _new_channel(self) -> Channel:
        assert self._driver is not None
        return self._driver(self._engine)

    def _start(self, channel: Channel) -> None:
        self._task = asyncio.get_running_loop().create_task(self.serve(channel), name="sqllocks-listener")

    def _message(self, error: Exception) -> str:
        return self._faults.fault(error, sent=True).message


class _Connecting:
    """One connection of a pool that only this session takes from."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._parent = engine
        self._engine: AsyncEngine | None = None
        self._connection: AsyncConnection | None = None
        self._event = AsyncioEvent()

    async def _connect(self) -> Any:
        pool = self._parent.sync_engine.pool.recreate()
        self._engine = create_async_engine(self._parent.url, pool=pool)
        connection = await self._engine.connect()
        self._connection = connection
        await connection.execution_options(isolation_level="AUTOCOMMIT")
        return (await connection.get_raw_connection()).driver_connection

    def poke(self) -> None:
        self._event.set()

    def end(self) -> None:
        """Nothing is left to give up."""

    async def close(self) -> None:
        """Close the connection for real."""
        connection, self._connection = self._connection, None
        engine, self._engine = self._engine, None
        if connection is not None:
            with suppress(Exception):
                await connection.invalidate()
            with suppress(Exception):
                await connection.close()
        if engine is not None:
            await engine.dispose()


class _AsyncpgChannel(_Connecting):
    """asyncpg reads by itself and calls back."""

    def __init__(self, engine: AsyncEngine) -> None:
        super().__init__(engine)
        self._driver: Any = None
        self._payloads: list[str] = []
        self._ended = False

    async def open(self) -> bool:
        driver = await self._connect()
        self._ended = False
        self._driver = driver
        driver.add_termination_listener(self._on_end)
        if await self.run(BACKEND) != [driver.get_server_pid()]:
            return False
        async with asyncio.timeout(ANSWER_PATIENCE):
            await driver.add_listener(CHANNEL, self._on_notify)
        return True

    async def run(self, sql: str) -> list[int]:
        async with asyncio.timeout(ANSWER_PATIENCE):
            return [record[0] for record in await self._driver.fetch(sql)]

    async def wait(self, seconds: float) -> None:
        if not self._payloads:
            await self._event.wait(seconds)
        if self._driver is not None and self._ended:
            raise ConnectionError("the server ended the session")

    def arrived(self) -> list[str]:
        """Take the payloads that arrived."""
        payloads, self._payloads = self._payloads, []
        return payloads

    async def close(self) -> None:
        self._driver = None
        self._payloads = []
        await super().close()

    def _on_notify(self, _connection: Any, _process: int, _channel: str, payload: str) -> None:
        self._payloads.append(payload)
        self._event.set()

    def _on_end(self, _connection: Any) -> None:
        self._ended = True
        self._event.set()


class _PsycopgChannel(PsycopgTalk, _Connecting):
    """psycopg reads when it is told to: the loop tells when there is something."""

    def __init__(self, engine: AsyncEngine) -> None:
        PsycopgTalk.__init__(self)
        _Connecting.__init__(self, engine)

    async def open(self) -> bool:
        return await self.begin(await self._connect())

    async def wait(self, seconds: float) -> None:
        if self._payloads:
            return
        if self._pgconn is None:
            await self._event.wait(seconds)
            return
        with _readiness(self._pgconn.socket, self._event):
            await self._event.wait(seconds)
        self._read()

    async def close(self) -> None:
        self._pgconn = None
        self._payloads = []
        await _Connecting.close(self)

    async def _moved(self, seconds: float, *, writing: bool) -> None:
        moved = AsyncioEvent()
        with _readiness(self._pgconn.socket, moved, writing=writing):
            await moved.wait(seconds)


@contextmanager
def _readiness(number: int, event: AsyncioEvent, *, writing: bool = False) -> Generator[None, None, None]:
    """Set the event once when the socket can be read or written."""
    loop = asyncio.get_running_loop()
    remove = loop.remove_writer if writing else loop.remove_reader

    def ready() -> None:
        remove(number)
        event.set()

    (loop.add_writer if writing else loop.add_reader)(number, ready)
    try:
        yield
    finally:
        remove(number)


_DRIVERS: dict[str, type[_AsyncpgChannel | _PsycopgChannel]] = {
    "asyncpg": _AsyncpgChannel,
    "psycopg": _PsycopgChannel,
    "psycopg_async": _PsycopgChannel,
}
