"""How the lock of the migrations is obtained: a session lock where the server can, else a lease."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from sqlalchemy import Engine

from sqllocks.errors import BackendUnavailable, BackendUnsupported, LockNotAcquired, LockTimeout, SchemaMissing
from sqllocks.lease import Lease
from sqllocks.lockers import SqlLocker
from sqllocks.model import LockInfo
from sqllocks.providers import SqlLockProvider
from sqllocks.runtime import clock
from sqllocks.session_lock import SessionLock

__all__ = ["Held", "Wish", "migration_lock"]

# under "alembic", because fileConfig() in env.py disables every logger that alembic.ini does not name
logger = logging.getLogger("alembic.sqllocks")


class Held(Protocol):
    """A lock that is held, of either kind."""

    def check(self) -> None:
        """Raise ``LeaseLost`` where it is known to be lost; asks no database."""
        ...

    def guard(self, session_or_connection: Any, /) -> None:
        """Prove it in the caller's transaction, and keep it until that ends."""
        ...

    def ask(self) -> None:
        """Ask the server for it on the lock's own connection, and raise ``LeaseLost`` where it is lost."""
        ...


@dataclass(frozen=True, slots=True)
class Wish:
    """Which lock is wanted; ``wait`` and ``ttl`` in seconds, ``None`` waits without limit."""

    key: str
    ttl: float
    wait: float | None


class _HeldLease:
    def __init__(self, lease: Lease, ttl: float) -> None:
        self.check = lease.check
        self.guard = lease.guard
        self._lease = lease
        self._ttl = ttl

    def ask(self) -> None:
        _unless_silent(lambda: self._lease.extend(ttl=self._ttl))
        self.check()


class _HeldSession:
    def __init__(self, lock: SessionLock) -> None:
        self.check = lock.check
        self.guard = lock.guard
        self._lock = lock

    def ask(self) -> None:
        _unless_silent(self._lock.held)
        self.check()


def _unless_silent(question: Callable[[], object]) -> None:
    try:
        question()
    except BackendUnavailable as error:
        # still trusted until its time is over, and the check that follows knows when that is
        logger.warning("the lock of the migrations could not be asked for: %s", error.message)


@contextmanager
def migration_lock(engine: Engine, wish: Wish) -> Iterator[Held]:
    """Hold the lock in a block.

    Makes the lock table first where it is missing, in a statement of its own. Blocks for up to
    ``wish.wait`` seconds; raises ``LockTimeout``, and at the end of the block ``LeaseLost`` where the
    lock was lost.
    """
    started = clock.monotonic()
    with SqlLockProvider(engine) as provider:
        _make_table(provider, wish.key)
        with _unless_dropped(), _session_or_lease(provider, engine, wish, started) as held:
            yield held


def _make_table(provider: SqlLockProvider, key: str) -> None:
    try:
        provider.inspect(key)
    except SchemaMissing:
        # not create_table() alone: at most starts there is a table, and perhaps no right to make one
        provider.create_table()


@contextmanager
def _unless_dropped() -> Iterator[None]:
    """Let the end of the block pass where the migrations themselves dropped the lock table."""
    done = False
    try:
        yield
        done = True
    except SchemaMissing as error:
        logger.info("nothing is given back: %s", error.message)
