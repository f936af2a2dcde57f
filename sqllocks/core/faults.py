"""Faults of statements as the errors that callers see."""

from __future__ import annotations

from typing import Any

from sqllocks.backends.base import Capabilities
from sqllocks.dialects.base import REFUSALS, Fault, FaultKind
from sqllocks.errors import BackendUnavailable, BackendUnsupported, LockError, LockNotAcquired, SchemaMissing
from sqllocks.model import LockHandle
from sqllocks.schema import init_command

__all__ = ["as_error", "busy"]


_ANSWERS: dict[FaultKind, tuple[type[LockError], str]] = {
    FaultKind.NO_TABLE: (
        SchemaMissing,
        "the table {table} does not exist or is not the library's ({message}). Create it with `{init}`, "
        "provider.create_table() or the Alembic revision that ships with sqllocks.",
    ),
    FaultKind.NO_SCHEMA: (
        SchemaMissing,
        "the schema {schema} does not exist ({message}). Create it, or name another one, then create "
        "the table in it with `{init}`.",
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
        "other transactions stood in the way all the time ({message}).{free} Ask again.",
    ),
}
_ANSWERS[FaultKind.LOCKED] = _ANSWERS[FaultKind.CONFLICT]
_LOCKED_FILE = (
    BackendUnavailable,
    "an open transaction is writing to the database file all the time ({message}). SQLite has one writer: "
    "commit or roll that transaction back first.{free}",
)
_NO_ANSWER = (BackendUnavailable, "no answer from the database ({message}).{held}")


def as_error(fault: Fault, doing: str, capabilities: Capabilities, **details: Any) -> LockError:
    """Return the library's error for a fault met while ``doing`` (for example ``"acquire 'k'"``).

    With a ``lock_key`` in its details it also says that the state of this lock is unknown, where it is.
    """
    error, text = _ANSWERS.get(fault.kind, _NO_ANSWER)
    if fault.kind in REFUSALS and capabilities.single_writer:
        error, text = _LOCKED_FILE
    one_lock = "lock_key" in details
    explained = text.format(
        table=capabilities.table,
        schema=capabilities.table.rpartition(".")[0] or "of the database",
        message=fault.message,
        init=init_command(capabilities.table),
        held=" Whether the lock is held is unknown." if one_lock else "",
        free=" Whether the lock is free is unknown." if one_lock else "",
    )
    return error(f"could not {doing}: {explained}", details=details)


def busy(handle: LockHandle) -> LockNotAcquired:
    """Return the error for a lock that is held and not waited for."""
    return LockNotAcquired(
        f"lock {handle.lock_key!r} is held by somebody else until {handle.expires_at.isoformat()}",
        details={"lock_key": handle.lock_key},
    )
