"""What a case works with: clients of one backend, a clock, and a look behind the scenes."""

from __future__ import annotations

import uuid
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from sqlalchemy import URL, Engine, create_engine, event, text
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker

from sqllocks import AsyncMemoryLockProvider, AsyncSqlLockProvider, MemoryLockProvider, SqlLockProvider
from tests.conformance.driving import Client, LoopThread
from tests.conformance.kinds import Kind
from tests.conformance.observing import Observer, Stored
from tests.servers.process import free_port

T = TypeVar("T")


class MovableClock:
    """The present moment, which a test can push forward."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def forward_to(self, moment: datetime) -> None:
        """Let the clock stand at ``moment`` or later."""
        self.ahead += max(moment - self(), timedelta())


@dataclass(slots=True)
class Place:
    """What all cases of one kind in one test process share."""

    kind: Kind
    loop: LoopThread
    threads: ThreadPoolExecutor
    url: URL | None = None
    observer: Observer | None = None
    clients: list[Client] = field(default_factory=list)

    def client(self, provider: Any) -> Client:
        """Return a client that speaks to the provider in the form of this kind."""
        return Client(provider, loop=self.loop if self.kind.asyncio else None, threads=self.threads)


class Transaction:
    """A session of the application in the middle of its own transaction, in blocking style."""

    def __init__(self, session: Any, loop: LoopThread | None) -> None:
        self._session = session
        self._loop = loop

    def _do(self, outcome: Any) -> Any:
        return self._loop.run(outcome) if self._loop else outcome

    def execute(self, statement: str, /, **values: Any) -> Any:
        """Run one statement in the transaction."""
        return self._do(self._session.execute(text(statement), values))

    def commit(self) -> None:
        self._do(self._session.commit())

    def rollback(self) -> None:
        self._do(self._session.rollback())

    def close(self) -> None:
        self._do(self._session.close())


class Subject:
    """One backend × driver × form, for the length of one case."""

    def __init__(self, place: Place, stack: ExitStack) -> None:
        self.kind = place.kind
        self._place = place
        self._stack = stack
        if self.kind.table:
            self.a, self.b = place.clients
        else:
            self.clock = MovableClock()
            self.a = self.b = self.client(clock=self.clock)

    @property
    def observer(self) -> Observer:
        """Return the onlooker at the table; memory has none."""
        assert self._place.observer is not None, "memory has no table"
        return self._place.observer

    @property
    def url(self) -> URL:
        """Return the address of the database; memory has none."""
        assert self._place.url is not None, "memory has no address"
        return self._place.url

    @property
    def address(self) -> str:
        """Return the address as a text that can be used, password and all."""
        return self.url.render_as_string(hide_password=False)

    @property
    def loop(self) -> LoopThread:
        """Return the loop of the asyncio objects."""
        return self._place.loop

    @property
    def unreachable(self) -> str:
        """Return the address of a database that does not answer."""
        if self.kind.server == "sqlite":
            return self.url.set(database="/nonexistent/locks.db").render_as_string(hide_password=False)
        dead = self.url.set(host="127.0.0.1", port=free_port())
        return dead.render_as_string(hide_password=False)

    def key(self, label: str = "key") -> str:
        """Return a key that was never used."""
        return f"{label}:{uuid.uuid4().hex[:12]}"

    def client(self, bind: Any = None, **options: Any) -> Client:
        """Return a client with a provider of its own, closed at the end of the case."""
        client = self._place.client(self.provider(bind, **options))
        # a release that found no server may still be tried again: not for long
        self._stack.callback(client.close, timeout=0.1)
        return client

    def provider(self, bind: Any = None, **options: Any) -> Any:
        """Return a bare provider, by default on this subject's database; the caller closes it."""
        if not self.kind.table:
            return (AsyncMemoryLockProvider if self.kind.asyncio else MemoryLockProvider)(**options)
        form = AsyncSqlLockProvider if self.kind.asyncio else SqlLockProvider
        return form(self.address if bind is None else bind, **options)

    def engine(self, url: URL | str | None = None, **options: Any) -> Engine | AsyncEngine:
        """Return an engine of the application, disposed at the end of the case."""
        target = self.url if url is None else url
        if self.kind.asyncio:
            engine = create_async_engine(target, **options)
            self._stack.callback(lambda: self.loop.run(engine.dispose()))
            return engine
        blocking = create_engine(target, **options)
        self._stack.callback(blocking.dispose)
        return blocking

    def sessionmaker(self, engine: Engine | AsyncEngine) -> Any:
        """Return the application's session factory for the engine."""
        return async_sessionmaker(engine) if isinstance(engine, AsyncEngine) else sessionmaker(engine)

    @contextmanager
    def transaction(self, factory: Any) -> Iterator[Transaction]:
        """Open a session of the application; what was not committed is rolled back at the end."""
        transaction = Transaction(factory(), self.loop if self.kind.asyncio else None)
        try:
            yield transaction
        finally:
            transaction.close()

    def now(self) -> datetime:
        """Return the moment by the clock that decides."""
        return self.observer.now() if self.kind.table else self.clock()

    def expire(self, key: str) -> None:
        """Let the lease of a key be over now."""
        if self.kind.table:
            self.observer.expire(key)
            return
        info = self.a.inspect(key)
        assert info is not None
        assert info.expires_at is not None
        self.clock.forward_to(info.expires_at)

    def stored(self, key: str) -> Stored:
        """Return the row of a key, which must exist."""
        row = self.observer.stored(key)
        assert row is not None, f"no row of {key}"
        return row

    def snapshot(self, key: str) -> object:
        """Return all that can be seen of a key: equal snapshots mean that nothing was changed."""
        return self.observer.raw(key) if self.kind.table else self.a.inspect(key)

    def unknown(self, key: str) -> bool:
        """Tell whether nothing is stored under the key."""
        return self.snapshot(key) is None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop of the asyncio objects."""
        return self.loop.run(work)

    def beside(self, client: Client, method: str, *arguments: Any, **options: Any) -> Future[Any]:
        """Begin a call that goes on beside the case."""
        return client.start(method, *arguments, **options)


def on_connect(engine: Engine | AsyncEngine, *statements: str) -> None:
    """Have the application run statements on each connection it opens."""

    def prepare(connection: Any, _record: Any) -> None:
        cursor = connection.cursor()
        for statement in statements:
            cursor.execute(statement)
        cursor.close()
        connection.commit()

    event.listen(engine.sync_engine if isinstance(engine, AsyncEngine) else engine, "connect", prepare)
