"""Every SQL statement of the library, one module for each family of databases."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Hashable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from sqlalchemy import Table
from sqlalchemy.engine import Dialect

from sqllocks.dialects.base import LeaseDialect
from sqllocks.dialects.checks import Checks
from sqllocks.dialects.mariadb import MariadbLeases
from sqllocks.dialects.mysql import MysqlLeases
from sqllocks.dialects.mysql_checks import mysql_checks
from sqllocks.dialects.mysql_session import MysqlSessions
from sqllocks.dialects.postgresql import PostgresqlLeases
from sqllocks.dialects.postgresql_checks import postgresql_checks
from sqllocks.dialects.postgresql_session import PostgresqlSessions
from sqllocks.dialects.sqlite import SqliteLeases
from sqllocks.dialects.sqlite_checks import sqlite_checks
from sqllocks.errors import BackendUnsupported

__all__ = [
    "SUPPORTED",
    "SessionDialect",
    "checks_for",
    "dialect_class",
    "enforced_lease",
    "leases_for",
    "no_session_locks",
    "sessions_for",
]

_CLASSES: dict[str, type[LeaseDialect]] = {
    "postgresql": PostgresqlLeases,
    "mysql": MysqlLeases,
    "mariadb": MariadbLeases,
    "sqlite": SqliteLeases,
}
SUPPORTED = tuple(_CLASSES)
D = TypeVar("D", bound=LeaseDialect)
_statements: dict[Hashable, Any] = {}
SessionDialect = PostgresqlSessions | MysqlSessions
_checks: WeakKeyDictionary[LeaseDialect, Checks] = WeakKeyDictionary()


def dialect_class(backend_name: str) -> type[LeaseDialect]:
    """Return the statements' class for a URL's database name, or raise ``BackendUnsupported``."""
    try:
        return _CLASSES[backend_name]
    except KeyError:
        raise BackendUnsupported(
            f"sqllocks does not know the database {backend_name!r}; it supports {', '.join(SUPPORTED)} "
            "(and memory, for tests)"
        ) from None


def leases_for(dialect: Dialect, table: Table) -> LeaseDialect:
    """Return the lease statements for a connected SQLAlchemy dialect; old servers are refused."""
    mariadb = bool(getattr(dialect, "is_mariadb", False))
    if dialect.name == "sqlite":
        _refuse_older("SQLite", sqlite3.sqlite_version_info, (3, 35))
        return _made(SqliteLeases, table)
    if dialect.name in {"mysql", "mariadb"}:
        version = _version(dialect)
        if mariadb:
            _refuse_older("MariaDB", version, (10, 6))
            return _made(MariadbLeases, table)
        _refuse_older("MySQL", version, (8, 0, 17))
        return _made(MysqlLeases, table)
    dialect_class(dialect.name)
    return _made(PostgresqlLeases, table)


def _made(kind: Callable[[Table], D], table: Table) -> D:
    """Return the statements on a table, made once: they know nothing of connections."""
    name = (kind, table.name, table.schema)
    found = _statements.get(name)
    if found is None:
        found = _statements[name] = kind(table)
    return found


def sessions_for(dialect: Dialect, table: Table) -> SessionDialect:
    """Return the statements on session locks for a connected SQLAlchemy dialect."""
    leases = leases_for(dialect, table)
    if isinstance(leases, PostgresqlLeases):
        return PostgresqlSessions(table)
    if isinstance(leases, MysqlLeases):
        return MysqlSessions(table, mariadb=leases.mariadb)
    raise no_session_locks(dialect.name)


def checks_for(leases: LeaseDialect) -> Checks:
    """Return the questions that tell what a server can do for locks; the same ones each time."""
    found = _checks.get(leases)
    if found is None:
        if isinstance(leases, PostgresqlLeases):
            found = postgresql_checks(leases)
        elif isinstance(leases, MysqlLeases):
            found = mysql_checks(leases, mariadb=leases.mariadb)
        else:
            found = sqlite_checks(leases)
        _checks[leases] = found
    return found


def enforced_lease(backend_name: str, lease: float) -> float:
    """Return the seconds of silence after which a server ends a session that asked for ``lease``."""
    if backend_name == "postgresql":
        return PostgresqlSessions.enforced(lease)
    if backend_name in {"mysql", "mariadb"}:
        return MysqlSessions.enforced(lease)
    raise no_session_locks(backend_name)


def no_session_locks(name: str) -> BackendUnsupported:
    """Return the error for a database without locks that belong to a session."""
    return BackendUnsupported(
        f"{name} has no locks that belong to a session: use leases (SqlLockProvider), an elector with "
        "strategy='lease', or MemoryLocker within one process"
    )


def _version(dialect: Any) -> tuple[int, ...] | None:
    # SQLAlchemy keeps non-numeric parts of MariaDB's version text
    info = dialect.server_version_info
    return tuple(part for part in info if isinstance(part, int)) if info else None


def _refuse_older(name: str, found: tuple[int, ...] | None, needed: tuple[int, ...]) -> None:
    if found is not None and found < needed:
        raise BackendUnsupported(
            f"{name} {'.'.join(map(str, found))} is too old for sqllocks: it needs {name} "
            f"{'.'.join(map(str, needed))} or later (SKIP LOCKED, JSON_TABLE, RETURNING)"
        )
