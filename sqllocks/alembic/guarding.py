"""``migration_guard``: one migrator at a time, proven again with every step."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, Engine, inspect

from sqllocks.alembic.holding import Held, Wish, migration_lock
from sqllocks.errors import LockValidationError
from sqllocks.model import Seconds
from sqllocks.policy import checked_ttl, checked_wait
from sqllocks.runtime.binding import engine_for
from sqllocks.schema import TABLE_NAME

__all__ = [
    "DEFAULT_KEY",
    "DEFAULT_TTL",
    "DEFAULT_WAIT",
    "MigrationGuard",
    "entered",
    "migration_guard",
    "wish",
]

DEFAULT_KEY = "migrations:apply"
DEFAULT_TTL = 30.0
DEFAULT_WAIT = 300.0
# DDL ends a transaction of MySQL and MariaDB unseen, and a proof in it would be believed for too long
_PROVES_INSIDE = ("postgresql", "sqlite")


class MigrationGuard:
    """The right to migrate; what ``migration_guard`` yields."""

    def __init__(self, key: str, held: Held | None, engine: Engine | None) -> None:
        self._key = key
        self._held = held
        self._engine = engine
        self.handed_over = False
        """Whether somebody took ``on_version_apply``."""

    @property
    def key(self) -> str:
        """The key of the lock."""
        return self._key

    def check(self) -> None:
        """Raise ``LeaseLost`` where the lock is lost. Asks no database."""
        if self._held is not None:
            self._held.check()

    @property
    def on_version_apply(self) -> Callable[..., None]:
        """The hook for ``context.configure(on_version_apply=…)``.

        After each step and in its transaction it proves that the lock is held; where it is not, its
        ``LeaseLost`` ends the run, and that transaction is rolled back.
        """
        self.handed_over = True
        return self._on_version_apply

    def _on_version_apply(self, ctx: MigrationContext, **_: Any) -> None:
        if not ctx.as_sql:
            self.prove(ctx, written=True)

    def prove(self, context: MigrationContext, *, written: bool = False) -> None:
        """Prove the lock to the server, or raise ``LeaseLost``.

        ``written`` tells that a step was done and awaits its commit: where DDL is transactional, the proof
        then is part of that transaction, and keeps everybody from the lock until it ends.
        """
        if self._held is None:
            return
        self._held.check()
        connection = context.connection
        if connection is None or not self._same_database(connection):
            self._held.ask()
            return
        name = connection.dialect.name
        sqlite = name == "sqlite"
        own = name in _PROVES_INSIDE and (context.impl.transactional_ddl or (sqlite and written))
        if own and not inspect(connection).has_table(TABLE_NAME):
            # dropped by this very run perhaps, and then a question about it waits until that is committed
            return
        # to SQLite's file nobody else can speak than the one that writes to it
        if own and (written or sqlite):
            self._prove_inside(self._held, connection)
        else:
            self._held.ask()

    def _prove_inside(self, held: Held, connection: Connection) -> None:
        try:
            held.guard(connection)
        except LockValidationError:
            # in autocommit mode there is no transaction to prove anything in
            held.ask()

    def _same_database(self, connection: Connection) -> bool:
        return self._engine is not None and _place(self._engine) == _place(connection.engine)


_present: ContextVar[MigrationGuard | None] = ContextVar("sqllocks_migration_guard", default=None)


@contextmanager
def migration_guard(
    bind: Any, *, key: str = DEFAULT_KEY, ttl: Seconds = DEFAULT_TTL, wait: Seconds | None = DEFAULT_WAIT
) -> Generator[MigrationGuard]:
    """Hold the right to migrate in a block, for ``env.py``.

    Enter it before the connection is used, and pass ``guard.on_version_apply`` to ``context.configure``.
    ``bind`` is as for ``SqlLockProvider``; the lock has a connection of its own, so it outlasts commits.
    Blocks for up to ``wait`` seconds and raises ``LockTimeout`` after it, at the end ``LeaseLost`` where
    the lock was lost. ``ttl`` is what a holder that froze or vanished keeps the others waiting. Inside a
    guard of the same key, also that of ``apply_migrations``, it is that guard.
    """
    wanted = wish(key, ttl, wait)
    present = _present.get()
    if present is not None and (present.key in ("", key)):
        yield present
        return
    engine = engine_for(bind, caller="migration_guard")
    with migration_lock(engine, wanted) as held, entered(MigrationGuard(key, held, engine)) as guard:
        yield guard
    if not guard.handed_over:
        warnings.warn(
            f"the guard {key!r} was proven at its beginning and end only: pass its on_version_apply to "
            "context.configure()",
            RuntimeWarning,
            stacklevel=3,
        )


def wish(key: str, ttl: Seconds, wait: Seconds | None) -> Wish:
    """Return what is wanted, or raise ``LockValidationError``."""
    return Wish(key, checked_ttl(ttl) / 1_000_000, checked_wait(wait))


@contextmanager
def entered(guard: MigrationGuard) -> Generator[MigrationGuard]:
    """Let every ``migration_guard`` of the same key inside the block be this one."""
    token = _present.set(guard)
    try:
        yield guard
    finally:
        _present.reset(token)


def _place(engine: Engine) -> tuple[Any, ...]:
    url = engine.url
    return url.get_backend_name(), url.host, url.port, url.database
