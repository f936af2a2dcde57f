"""Seeing the end of a transaction that belongs to the application.

SQLAlchemy's events ``commit`` and ``rollback`` come *before* the database is told, so they cannot say
that a row lock is gone. The end is seen where SQLAlchemy itself asks for it: in the public methods of the
engine's dialect that every way out leads through, be it a ``Session``, a ``Connection`` whose transaction
a ``Session`` has joined, a two-phase commit, or a pool that rolls back or closes what it gets back. They
are wrapped once for each engine, when its first transaction is watched.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable
from contextvars import ContextVar
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.engine import Dialect

from sqllocks.core.guard import Ending

__all__ = ["ENDED_ON", "is_watched", "on_transaction_end"]

logger = logging.getLogger("sqllocks")

Callback = Callable[[Ending], None]

_ENDS = {
    "do_commit": Ending.COMMITTED,
    "do_commit_twophase": Ending.COMMITTED,
    "do_rollback": Ending.ROLLED_BACK,
    "do_rollback_twophase": Ending.ROLLED_BACK,
    "do_close": Ending.UNKNOWN,
    "do_terminate": Ending.UNKNOWN,
}
_install = threading.Lock()

ENDED_ON: ContextVar[Any] = ContextVar("ENDED_ON", default=None)
"""During a callback: the DBAPI connection, by whose ``run_async`` a callback of the asyncio form can wait."""


def on_transaction_end(connection: Connection, callback: Callback, *, name: Hashable = None) -> bool:
    """Call back once when the database transaction that ``connection`` is in has ended on the server.

    That is the outermost one, whatever ``Session`` or savepoint is on top. The callback gets how it
    ended; it runs in the thread (or the greenlet) that ends it, before ``commit()``, ``rollback()`` or
    ``close()`` returns, after those that were registered before it, and must not use this connection.
    What it raises is logged.

    Returns whether it was registered: ``False`` where one of the same ``name`` waits already. Raises
    ``ValueError`` where no transaction is open.

    Not seen are ends that SQLAlchemy does not know of: ``COMMIT`` sent as a text, the driver's own
    ``commit()``, DDL on MySQL, a session that the server has killed (until the connection is used again).
    """
    if not connection.in_transaction():
        raise ValueError("this connection is in no transaction")
    watched = _watch(connection.dialect).of(_driver_connection(connection))
    return watched.add(object() if name is None else name, callback)


def is_watched(connection: Connection, name: Hashable) -> bool:
    """Return whether a callback of that name waits for the end of the connection's transaction."""
    return _watch(connection.dialect).has(_driver_connection(connection), name)


class _Watched:
    """A transaction whose end somebody waits for."""

    def __init__(self, driver_connection: Any) -> None:
        self.driver_connection = driver_connection  # kept, so that its id stays its own
        self._callbacks: dict[Hashable, Callback] = {}

    def add(self, name: Hashable, callback: Callback) -> bool:
        """Register a callback unless there is one of that name."""
        return self._callbacks.setdefault(name, callback) is callback

    def knows(self, name: Hashable) -> bool:
        """Return whether there is a callback of that name."""
        return name in self._callbacks

    def ended(self, ending: Ending) -> None:
        """Call everybody back."""
        token = ENDED_ON.set(self.driver_connection)
        try:
            for callback in self._callbacks.values():
                try:
                    callback(ending)
                except Exception:
                    logger.exception("a callback at the end of a guarded transaction failed")
        finally:
            ENDED_ON.reset(token)


class _Watch:
    """The watched transactions of one engine, by the driver's connection."""

    def __init__(self, dialect: Dialect) -> None:
        self._open: dict[int, _Watched] = {}
        # only this file database can refuse a COMMIT and go on with the transaction
        self._survives = dialect.name == "sqlite"

    @property
    def busy(self) -> bool:
        """Whether there is anything to watch."""
        return bool(self._open)

    def of(self, driver_connection: Any) -> _Watched:
        """Return the watched transaction of a connection, which may be new."""
        return self._open.setdefault(id(driver_connection), _Watched(driver_connection))

    def has(self, driver_connection: Any, name: Hashable) -> bool:
        """Return whether somebody of that name waits for the end of the transaction."""
        watched = self._open.get(id(driver_connection))
        return watched is not None and watched.knows(name)

    def take(self, driver_connection: Any) -> _Watched | None:
        """Return the watched transaction that is about to end, and forget it."""
        return self._open.pop(id(driver_connection), None)

    def failed(self, watched: _Watched) -> None:
        """Settle what became of a transaction whose end was refused."""
        if self._survives and _in_transaction(watched.driver_connection):
            self._open[id(watched.driver_connection)] = watched
        else:
            watched.ended(Ending.UNKNOWN)

    def savepoint_released(self, driver_connection: Any) -> None:
        """The outermost savepoint ends the transaction where no ``BEGIN`` was sent before it."""
        if not _in_transaction(driver_connection) and (watched := self.take(driver_connection)):
            watched.ended(Ending.COMMITTED)


class _EndingMethod:
    """A method of a dialect that ends a transaction, and tells."""

    def __init__(self, watch: _Watch, method: Callable[..., Any], ending: Ending) -> None:
        self.watch = watch
        self._method = method
        self._ending = ending

    def __call__(self, subject: Any, *arguments: Any, **options: Any) -> Any:
        # first forgotten, then ended: a two-phase commit rolls back on its way
        watched = self.watch.take(_driver_connection(subject)) if self.watch.busy else None
        if watched is None:
            return self._method(subject, *arguments, **options)
        try:
            result = self._method(subject, *arguments, **options)
        except BaseException:
            self.watch.failed(watched)
            raise
        watched.ended(self._ending)
        return result


def _watch(dialect: Dialect) -> _Watch:
    with _install:
        present: Any = dialect.do_commit
        if isinstance(present, _EndingMethod):
            return present.watch
        watch = _Watch(dialect)
        for name, ending in _ENDS.items():
            setattr(dialect, name, _EndingMethod(watch, getattr(dialect, name), ending))
        if dialect.name == "sqlite":
            _watch_savepoints(dialect, watch)
        return watch


def _watch_savepoints(dialect: Any, watch: _Watch) -> None:
    release = dialect.do_release_savepoint

    def do_release_savepoint(connection: Connection, name: str) -> None:
        release(connection, name)
        watch.savepoint_released(_driver_connection(connection))

    dialect.do_release_savepoint = do_release_savepoint


def _driver_connection(subject: Any) -> Any:
    """Return the DBAPI connection below a ``Connection`` or a ``PoolProxiedConnection``, or itself."""
    if isinstance(subject, Connection):
        subject = None if subject.closed or subject.invalidated else subject.connection
    return getattr(subject, "dbapi_connection", subject)


def _in_transaction(driver_connection: Any) -> bool:
    # an asyncio driver's connection is below SQLAlchemy's adapter
    return bool(getattr(driver_connection, "driver_connection", driver_connection).in_transaction)
