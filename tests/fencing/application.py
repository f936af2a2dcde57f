"""An application with data of its own, which works through SQLAlchemy in either form."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from sqlalchemy import BigInteger, Engine, String, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.pool import StaticPool

from sqllocks import LockHandle
from sqllocks.core.guard import Ending
from sqllocks.fencing import Guards, MemoryGuards
from sqllocks.runtime.transactions import on_transaction_end
from tests.conformance.driving import LoopThread
from tests.conformance.subject import Subject, on_connect

WAYS = ("session", "connection")
LEVELS = {
    "memory": ("SERIALIZABLE",),
    "sqlite": ("SERIALIZABLE",),
    "postgresql": ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"),
    "mysql": ("READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"),
    "mariadb": ("READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"),
}


class Base(DeclarativeBase):
    """The tables of the application."""


class Account(Base):
    """A row that is written under a lock."""

    __tablename__ = "accounts"

    name: Mapped[str] = mapped_column(String(80), primary_key=True)
    balance: Mapped[int] = mapped_column(BigInteger, default=0)
    seen: Mapped[int | None] = mapped_column(BigInteger)


class RecordedPins:
    """Pins that keep what they were told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def pinned(self, key: str, owner: str, token: int) -> None:
        self.told.append(("pinned", key, owner, token))

    def unpinned(self, key: str, owner: str, token: int, ending: Ending) -> None:
        self.told.append(("unpinned", key, owner, token, ending))


class Transaction:
    """A session or connection in the middle of its work, in blocking style."""

    def __init__(self, source: Any, guards: Any, loop: LoopThread | None) -> None:
        self.source = source
        self._guards = guards
        self._loop = loop

    def do(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of the session or connection."""
        return self.run(lambda: getattr(self.source, method)(*arguments, **options))

    def run(self, call: Callable[[], Any]) -> Any:
        """Make a call in the form of the application."""
        if self._loop is None:
            return call()

        async def awaited() -> Any:
            found = call()
            return await found if inspect.isawaitable(found) else found

        return self._loop.run(awaited())

    def execute(self, statement: Any, **values: Any) -> Any:
        """Run one statement."""
        return self.do("execute", text(statement) if isinstance(statement, str) else statement, values)

    def guard(self, handle: LockHandle, *, guards: Any = None, **options: Any) -> None:
        """Guard the transaction."""
        method = "guard" if self._loop is None else "async_guard"
        self.run(lambda: getattr(guards or self._guards, method)(self.source, handle, **options))

    def savepoint(self) -> Transaction:
        """Begin a savepoint, which can be committed and rolled back like a transaction."""

        async def begun() -> Any:
            return await self.source.begin_nested()

        return Transaction(self.run(begun if self._loop else self.source.begin_nested), None, self._loop)

    def when_ended(self, callback: Callable[[Ending], None], **options: Any) -> bool:
        """Register for the end of the database transaction."""

        def register(source: Any) -> bool:
            connection = source.connection() if isinstance(source, Session) else source
            return on_transaction_end(connection, callback, **options)

        if self._loop is None:
            return register(self.source)
        registered: bool = self.do("run_sync", register)
        return registered

    def commit(self) -> None:
        self.do("commit")

    def rollback(self) -> None:
        self.do("rollback")

    def close(self) -> None:
        self.do("close")


class Application:
    """Its engines and transactions, closed at the end of the case."""

    def __init__(self, subject: Subject, stack: ExitStack) -> None:
        self.subject = subject
        self._stack = stack
        self.loop = subject.loop if subject.kind.asyncio else None
        self.pins = RecordedPins()
        if subject.kind.table:
            self.guards: Any = Guards(pins=self.pins)
        else:
            self.guards = MemoryGuards(subject.a.provider._leases._backend)
        self._ready = False

    def engine(self, *statements: str, **options: Any) -> Engine | AsyncEngine:
        """Return an engine on the database (with memory locks, on one of its own).

        The statements are run on each connection that it opens.
        """
        if not self.subject.kind.table:
            form = "sqlite+aiosqlite://" if self.loop else "sqlite://"
            options = {"poolclass": StaticPool, **options}
            engine = self.subject.engine(form, **options)
            self.run_on(engine, Base.metadata.create_all)
            return engine
        engine = self.subject.engine(**options)
        on_connect(engine, *statements)
        if not self._ready:
            self.run_on(engine, Base.metadata.create_all)
            self._ready = True
        return engine

    def run_on(self, engine: Engine | AsyncEngine, work: Callable[[Any], Any]) -> None:
        """Run something on a connection, and commit."""
        if isinstance(engine, Engine):
            with engine.begin() as connection:
                work(connection)
            return

        async def on_loop() -> None:
            async with engine.begin() as connection:
                await connection.run_sync(work)

        assert self.loop is not None
        self.loop.run(on_loop())

    @contextmanager
    def transaction(
        self, way: str = "session", *, engine: Engine | AsyncEngine | None = None, **options: Any
    ) -> Iterator[Transaction]:
        """Open a session or a connection; what is not committed is rolled back at the end."""
        engine = engine or self.engine(**options)
        transaction = Transaction(self._opened(engine, way), self.guards, self.loop)
        try:
            yield transaction
        finally:
            transaction.close()

    def _opened(self, engine: Engine | AsyncEngine, way: str) -> Any:
        if isinstance(engine, Engine):
            return Session(engine) if way == "session" else engine.connect()
        if way == "session":
            return AsyncSession(engine)

        async def connected() -> Any:
            return await engine.connect()

        assert self.loop is not None
        return self.loop.run(connected())

    def account(self, name: str, **values: Any) -> str:
        """Store an account, and return its name."""
        row = Account(name=name, **{"balance": 0, **values})
        with self.transaction() as transaction:
            transaction.source.add(row)
            transaction.commit()
        return name

    def balance(self, name: str) -> int:
        """Return the committed balance."""
        with self.transaction() as transaction:
            found = transaction.execute("SELECT balance FROM accounts WHERE name = :name", name=name)
            return int(found.scalar_one())
