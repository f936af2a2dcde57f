"""The one session that carries the locks of a locker: what both forms share.

Nothing waits on it. It is told to be ended by the server after a silence of ``lease`` seconds, it is never
handed to anybody else, and when anything about it is in doubt it is closed for real.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import Table
from sqlalchemy.engine import Dialect

from sqllocks.backends.port import LockSession
from sqllocks.core.excluding import (
    PROOF_AGE,
    refuse,
    refuse_pooler,
    refuse_stub,
    refuse_transaction_pooler,
)
from sqllocks.dialects import SessionDialect, sessions_for
from sqllocks.dialects.base import Fault, FaultKind
from sqllocks.dialects.sessions import Server
from sqllocks.runtime import clock
from sqllocks.runtime.sockets import Sign, peek

__all__ = ["CLOSE_PATIENCE", "IN_DOUBT", "SessionPlan", "Steady", "gone", "plainly_given"]

IN_DOUBT = (FaultKind.GONE, FaultKind.OTHER)
"""Failures after which nobody knows what the session still holds."""
CLOSE_PATIENCE = 2.0
"""Seconds that a shutdown waits for the statement in flight."""
_LATER = 0.02
"""Seconds until a socket is looked at again that belongs to a statement in flight."""
_NEWS = 1.0
"""The same where something arrived that the next statement will read."""

_proven: WeakKeyDictionary[Any, float] = WeakKeyDictionary()
_mutex = threading.Lock()


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """What a locker asks of its sessions."""

    lease: float
    heartbeat: float
    pooler: str | None = None


class Steady(ABC):
    """What is known of one dedicated session, in either form."""

    def __init__(self, parent: Any, table: Table, plan: SessionPlan) -> None:
        self.ended: Callable[[], Callable[[], None]] = lambda: _nothing
        self.stirred: Callable[[], None] = _nothing
        """Called when something arrived that nobody asked for: the session may be about to end."""
        self.unset: dict[str, str] = {}
        """What the server would not let the session be told, and why."""
        self.server: Server | None = None
        self._parent = parent
        self._table = table
        self._plan = plan
        self._sql: SessionDialect | None = None

    def _speak(self, dialect: Dialect) -> SessionDialect:
        if self._sql is None:
            self._sql = sessions_for(dialect, self._table)
        return self._sql

    async def _introduce(self, session: Any) -> Server:
        """Ask the server who it is, and refuse one that says that its locks exclude nobody."""
        server: Server = session.sql.server((await session.query(session.sql.identity, {})).rows[0])
        session.server = server
        pooled = refuse_pooler(plainly_given(session.driver), session, self._plan.pooler)
        refuse(session)
        await self._prove(session, pooled=pooled)
        for name, text in session.sql.settings(self._plan.lease, self._plan.heartbeat):
            try:
                await session.tell(text)
            except Fault as fault:
                if fault.kind is FaultKind.GONE:
                    raise
                self.unset[name] = fault.message
        self.server = server
        return server

    async def _prove(self, session: LockSession, *, pooled: bool) -> None:
        """See with a second session that the server excludes; once for an engine and a while."""
        with _mutex:
            proven_at = _proven.get(self._parent)
        if proven_at is not None and clock.now() - proven_at < PROOF_AGE:
            return
        other: Any = await self._second()
        try:
            other.server = other.sql.server((await other.query(other.sql.identity, {})).rows[0])
            if pooled:
                await refuse_transaction_pooler(session, other)
            await refuse_stub(session, other)
        finally:
            await self._dismiss(other)
        with _mutex:
            _proven[self._parent] = clock.now()

    @abstractmethod
    async def _second(self) -> Any: ...

    @abstractmethod
    async def _dismiss(self, session: Any) -> None: ...

    @abstractmethod
    def cut(self) -> None: ...

    @abstractmethod
    def _busy(self) -> bool:
        """Return whether a statement is in flight, whose answer a readable socket may be."""

    def _look(self, watched: Any) -> float | None:
        """Look at the readable socket of the session; see ``sockets.Look``."""
        if self._busy():
            return _LATER
        sign = peek(watched)
        if sign is Sign.END:
            self.cut()
            return None
        if sign is Sign.NEWS:
            self.stirred()
            return _NEWS
        return _LATER


def gone(*, sent: bool) -> Fault:
    """Return the fault for a session that is not there any more."""
    return Fault(FaultKind.GONE, "the session that carried the lock has ended", sent=sent)


def plainly_given(connection: Any) -> int | None:
    """Return the number of the session as the connection's start told it, where the driver keeps it."""
    info = getattr(connection, "info", None)
    with suppress(AttributeError, TypeError):
        return int(info.backend_pid)  # type: ignore[union-attr]  # psycopg, psycopg2
    for name in ("get_server_pid", "thread_id"):  # asyncpg; the drivers for MySQL
        ask = getattr(connection, name, None)
        if ask is not None:
            with suppress(AttributeError, TypeError):
                return int(ask())
    return None


def _nothing() -> None:
    """Where nobody asked to be told."""
