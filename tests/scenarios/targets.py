"""How a process reaches a database: one client of the library, opened where it is used."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from sqllocks import AsyncSqlLockProvider, SqlLockProvider
from tests.conformance.driving import Client, LoopThread


@dataclass(frozen=True, slots=True)
class Target:
    """A database, the form to use and how the application set its engine up; can be pickled."""

    address: str
    asyncio: bool = False
    isolation: str | None = None
    setup: tuple[str, ...] = ()
    """What the application runs on each new connection."""
    connect_args: tuple[tuple[str, Any], ...] = ()
    holder: str | None = None

    def engine(self, **options: Any) -> Engine | AsyncEngine:
        """Return the application's engine."""
        if self.isolation is not None:
            options["isolation_level"] = self.isolation
        options["connect_args"] = dict(self.connect_args)
        make: Any = create_async_engine if self.asyncio else create_engine
        engine: Engine | AsyncEngine = make(self.address, **options)
        if self.setup:
            listened = engine.sync_engine if isinstance(engine, AsyncEngine) else engine
            event.listen(listened, "connect", self._prepare)
        return engine

    def open(self, loop: LoopThread | None, threads: ThreadPoolExecutor) -> Client:
        """Return a client of the library; the loop is that of the asyncio form."""
        plain = self.isolation is None and not self.setup and not self.connect_args
        bind = self.address if plain else self.engine()
        form = AsyncSqlLockProvider if self.asyncio else SqlLockProvider
        return Client(form(bind, holder=self.holder), loop=loop, threads=threads)

    def _prepare(self, connection: Any, _record: Any) -> None:
        cursor = connection.cursor()
        for statement in self.setup:
            cursor.execute(statement)
        cursor.close()
        connection.commit()


class Clients:
    """The clients of one process, opened at their first use."""

    def __init__(self) -> None:
        self._known: dict[Target, Client] = {}
        self._loop: LoopThread | None = None
        self.threads = ThreadPoolExecutor(2)

    def of(self, target: Target) -> Client:
        """Return the client of a target."""
        if target not in self._known:
            self._known[target] = target.open(self.loop if target.asyncio else None, self.threads)
        return self._known[target]

    @property
    def loop(self) -> LoopThread:
        """Return the loop of the asyncio clients."""
        # made late: a process that only blocks has one thread, and so can fork
        if self._loop is None:
            self._loop = LoopThread()
        return self._loop

    def close(self) -> None:
        """Close all clients."""
        known: Mapping[Target, Client] = dict(self._known)
        self._known.clear()
        for client in known.values():
            client.close()
