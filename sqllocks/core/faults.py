"""Faults of statements as the errors that callers see."""

from __future__ import annotations

from typing import Any

from sqllocks.backends.base import Capabilities
from sqllocks.dialects.base import REFUSALS, Fault, FaultKind
from sqllocks.errors import BackendUnavailable, BackendUnsupported, LockError, LockNotAcquired, SchemaMissing
from sqllocks.model import LockHandle

__all__ = ["as_error", "busy"]


_ANSWERS: dict[FaultKind, tuple[type[LockError], str]] = {
    FaultKind.NO_TABLE: (
        SchemaMissing,
        "the table {table} does not exist or is not the library's ({message}). Create it with `sqllocks init "
        "--url URL`, provider.create_table() or the Alembic revision that ships with sqllocks.",
    ),
    FaultKind.READ_ONLY: (
        BackendUnsupported,
        "the database takes no writes ({message}); a lock needs the primary. Connect to it, or lift its "
        "read-only mode.",
    ),
    FaultKind.FORBIDDEN: (
        BackendUnsupported,
        "the account lacks a privilege ({message}). Grant it SELECT, INSERT, UPDATE and DELETE on {table}.",
    ),
    FaultKind.UNSUPPORTED: (
        BackendUnsupported,
        "this server does not know a statement that locks need ({message}). Supported are PostgreSQL 14, "
        "MySQL 8.0.17, MariaDB 10.6, SQLite 3.35 and later.",
    ),
    FaultKind.FULL: (
        BackendUnavailable,
        "the server has no room for another lock ({message}). Whether it is held is unknown; raise the "
        "server's limit, or hold fewer locks at once.",
    ),
    FaultKind.CONFLICT: (
        BackendUnavailable,
        "other transactions stood in the way all the time ({message}). Whether the lock is free is unknown; "
        "ask again.",
    ),
}
_ANSWERS[FaultKind.LOCKED] = _ANSWERS[FaultKind.CONFLICT]
_LOCKED_FILE = (
    BackendUnavailable,
    "an open transaction is writing to the database file all the time ({message}). SQLite has one writer: "
    "commit or roll that transaction back first. Whether the lock is free is unknown.",
)
_NO_ANSWER = (
    BackendUnavailable,
    "no answer from the database ({message}). Whether the lock is held is unknown.",
)


def as_error(fault: Fault, doing: str, capabilities: Capabilities, **details: Any) -> LockError:
    """Return the library's error for a fault met while ``doing`` (for example ``"acquire 'k'"``)."""
    error, text = _ANSWERS.get(fault.kind, _NO_ANSWER)
    if fault.kind in REFUSALS and capabilities.single_writer:
        error, text = _LOCKED_FILE
    explained = text.format(table=capabilities.table, message=fault.message)
    return error(f"could not {doing}: {explained}", details=details)


def busy(handle: LockHandle) -> LockNotAcquired:
    """Return the error for a lock that is held and not waited for."""
    return LockNotAcquired(
        f"lock {handle.lock_key!r} is held by somebody else until {handle.expires_at.isoformat()}",
        details={"lock_key": handle.lock_key},
    )
