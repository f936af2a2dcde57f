"""An outbox: messages stored in the transaction that causes them, delivered at least once by one dispatcher.

    metadata = MetaData()
    table = outbox_table(metadata)                    # beside the application's tables
    outbox = Outbox(provider, table, Session)

    with Session.begin() as session:
        ...                                           # the change, and in the same transaction
        outbox.add(session, "invoice.paid", {"invoice": 17})

    outbox.dispatch(send)                             # anywhere, as often as you like: one at a time works

A dispatcher claims a batch under the lock ``outbox:dispatch``, delivers, and marks what was delivered, each
in a transaction that proves the lock. One that dies between delivering and marking leaves messages that are
delivered again, with the same ``idempotency_key``: let the receiver remember it.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Index,
    Integer,
    MetaData,
    RowMapping,
    Table,
    Text,
    select,
)
from sqlalchemy.dialects.mysql import LONGTEXT
from sqlalchemy.ext.asyncio import async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker

from sqllocks.errors import LockNotAcquired, LockValidationError
from sqllocks.fencing import asyncio_source, blocking_source
from sqllocks.model import Seconds
from sqllocks.protocols import AsyncLockProvider, LockProvider
from sqllocks.recipes.canonical import canonical
from sqllocks.recipes.work import AsyncioWork, BlockingWork, Held, Work
from sqllocks.runtime.blocking import drive
from sqllocks.schema import ByteString, Instant

__all__ = ["LOCK_KEY", "AsyncOutbox", "Dispatched", "Message", "Outbox", "outbox_table"]

logger = logging.getLogger("sqllocks")

LOCK_KEY = "outbox:dispatch"


def outbox_table(metadata: MetaData, *, name: str = "outbox", schema: str | None = None) -> Table:
    """Return the table of the messages, added to ``metadata``."""
    table = Table(
        name,
        metadata,
        Column("id", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=True),
        Column("idempotency_key", ByteString(128), nullable=False, unique=True),
        Column("topic", ByteString(255), nullable=False),
        Column("payload", Text().with_variant(LONGTEXT(), "mysql", "mariadb"), nullable=False),
        Column("created_at", Instant, nullable=False),
        Column("attempts", Integer, nullable=False),
        Column("fencing_token", BigInteger),
        Column("delivered_at", Instant),
        schema=schema,
        mysql_engine="InnoDB",
        mariadb_engine="InnoDB",
    )
    Index(f"ix_{name}_undelivered", table.c.delivered_at, table.c.id)
    return table


@dataclass(frozen=True, slots=True)
class Message:
    """A message that is to be delivered; ``attempt`` counts from 1."""

    idempotency_key: str
    topic: str
    payload: Any
    attempt: int
    fencing_token: int
    """That of the dispatcher: a receiver that refuses smaller ones has met the last of them."""


@dataclass(frozen=True, slots=True)
class Dispatched:
    """What one run did; all zeros where another dispatcher was at work, or nothing was left to do."""

    claimed: int = 0
    delivered: int = 0
    failed: int = 0


class Outbox:
    """The messages in one table, in the blocking form.

    ``ttl`` is that of the lock, which is renewed; ``max_attempts`` how often a message is tried before it is
    left for people to look at (``delivered_at`` stays empty).
    """

    def __init__(
        self,
        provider: LockProvider,
        table: Table,
        sessions: sessionmaker[Any],
        *,
        lock_key: str = LOCK_KEY,
        ttl: Seconds = 30,
        max_attempts: int = 20,
    ) -> None:
        self._messages = _Messages(table, max_attempts)
        self._dispatcher = _Dispatcher(BlockingWork(provider, sessions), self._messages, lock_key, ttl)

    def add(self, session: Any, topic: str, payload: Any, *, idempotency_key: str | None = None) -> str:
        """Store a message (plain JSON) in the caller's transaction; return its idempotency key.

        A key that was used before makes that transaction fail, as any unique column does.
        """
        return self._messages.add(blocking_source(session), topic, payload, idempotency_key)

    def dispatch(self, deliver: Callable[[Message], Any], *, batch: int = 100) -> Dispatched:
        """Deliver one batch, oldest first; do nothing where another dispatcher is at work.

        A message whose ``deliver`` raises is tried again in a later run, and does not hold the others up.
        Raises ``LeaseLost`` where the lock was lost meanwhile: what was delivered since is delivered again.
        """
        return drive(self._dispatcher.run(deliver, batch))


class AsyncOutbox:
    """The messages in one table, in the asyncio form.

    ``ttl`` is that of the lock, which is renewed; ``max_attempts`` how often a message is tried before it is
    left for people to look at (``delivered_at`` stays empty).
    """

    def __init__(
        self,
        provider: AsyncLockProvider,
        table: Table,
        sessions: async_sessionmaker[Any],
        *,
        lock_key: str = LOCK_KEY,
        ttl: Seconds = 30,
        max_attempts: int = 20,
    ) -> None:
        self._messages = _Messages(table, max_attempts)
        self._dispatcher = _Dispatcher(AsyncioWork(provider, sessions), self._messages, lock_key, ttl)

    async def add(self, session: Any, topic: str, payload: Any, *, idempotency_key: str | None = None) -> str:
        """Store a message (plain JSON) in the caller's transaction; return its idempotency key.

        A key that was used before makes that transaction fail, as any unique column does.
        """
        return await asyncio_source(session).run_sync(
            lambda source: self._messages.add(source, topic, payload, idempotency_key)
        )

    async def dispatch(self, deliver: Callable[[Message], Awaitable[Any]], *, batch: int = 100) -> Dispatched:
        """Deliver one batch, oldest first; do nothing where another dispatcher is at work.

        A message whose ``deliver`` raises is tried again in a later run, and does not hold the others up.
        Raises ``LeaseLost`` where the lock was lost meanwhile: what was delivered since is delivered again.
        """
        return await self._dispatcher.run(deliver, batch)


class _Dispatcher:
    """One run: claim, deliver, mark."""

    def __init__(self, work: Work, messages: _Messages, lock_key: str, ttl: Seconds) -> None:
        self._work = work
        self._messages = messages
        self._lock_key = lock_key
        self._ttl = ttl

    async def run(self, deliver: Callable[[Message], Any], batch: int) -> Dispatched:
        if batch < 1:
            raise LockValidationError("batch must be at least 1", details={"argument": "batch"})
        try:
            async with self._work.hold(self._lock_key, ttl=self._ttl) as lease:
                return await self._batch(lease, deliver, batch)
        except LockNotAcquired:  # by nobody but the lock: what a delivery raises stays in the batch
            return Dispatched()

    async def _batch(self, lease: Held, deliver: Callable[[Message], Any], batch: int) -> Dispatched:
        token = lease.fencing_token
        claimed = await self._work.guarded(lease, partial(self._messages.claim, token=token, batch=batch))
        delivered: list[str] = []
        for message in claimed:
            lease.check()
            try:
                await self._work.call(deliver, message)
            except Exception:
                logger.exception("message %s (%r) was not delivered", message.idempotency_key, message.topic)
            else:
                delivered.append(message.idempotency_key)
        if delivered:
            await self._work.guarded(lease, partial(self._messages.mark, token=token, keys=delivered))
        return Dispatched(len(claimed), len(delivered), len(claimed) - len(delivered))


class _Messages:
    """The statements on the table, in a transaction that others have begun."""

    def __init__(self, table: Table, max_attempts: int) -> None:
        self._table = table
        self._max_attempts = max_attempts

    def add(self, source: Session | Connection, topic: str, payload: Any, key: str | None) -> str:
        key = uuid.uuid4().hex if key is None else key
        row = {
            "idempotency_key": key,
            "topic": topic,
            "payload": canonical(payload, argument="payload"),
            "created_at": datetime.now(UTC),
            "attempts": 0,
        }
        source.execute(self._table.insert().values(row))
        return key

    def claim(self, session: Session, *, token: int, batch: int) -> list[Message]:
        """Take the oldest messages under a token; one that fails again and again is left out in the end."""
        columns = self._table.c
        waiting = columns.delivered_at.is_(None) & (columns.attempts < self._max_attempts)
        oldest = select(self._table).where(waiting).order_by(columns.id).limit(batch)
        found = list(session.execute(oldest).mappings())
        if found:
            taken = columns.id.in_([row["id"] for row in found])
            new = {"fencing_token": token, "attempts": columns.attempts + 1}
            session.execute(self._table.update().where(taken).values(new))
        return [_message(row, token) for row in found]

    def mark(self, session: Session, *, token: int, keys: Sequence[str]) -> None:
        """Note what was delivered under a token."""
        columns = self._table.c
        ours = columns.idempotency_key.in_(keys) & (columns.fencing_token == token)
        session.execute(self._table.update().where(ours).values(delivered_at=datetime.now(UTC)))


def _message(row: RowMapping, token: int) -> Message:
    payload = json.loads(row["payload"])
    return Message(row["idempotency_key"], row["topic"], payload, row["attempts"] + 1, token)
