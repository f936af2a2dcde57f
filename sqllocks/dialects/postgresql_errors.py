"""What PostgreSQL's errors mean, whatever driver raises them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from typing import cast as cast_type

from sqllocks.dialects.base import FaultKind

__all__ = ["fault_kind", "sql_state"]

# https://www.postgresql.org/docs/current/errcodes-appendix.html
_KINDS: Mapping[str, FaultKind] = {
    "40001": FaultKind.CONFLICT,  # serialization_failure
    "40P01": FaultKind.CONFLICT,  # deadlock_detected
    "55P03": FaultKind.LOCKED,  # lock_not_available
    "57014": FaultKind.LOCKED,  # query_canceled, by statement_timeout too
    "23505": FaultKind.CONFLICT,  # unique_violation: somebody else created the table or row just now
    "42P07": FaultKind.CONFLICT,  # duplicate_table
    "42710": FaultKind.CONFLICT,  # duplicate_object: the table's row type
    "42P01": FaultKind.NO_TABLE,  # undefined_table
    "42703": FaultKind.NO_TABLE,  # undefined_column
    "3F000": FaultKind.NO_SCHEMA,  # invalid_schema_name
    "25006": FaultKind.READ_ONLY,  # read_only_sql_transaction
    "42501": FaultKind.FORBIDDEN,  # insufficient_privilege
    "0A000": FaultKind.UNSUPPORTED,  # feature_not_supported
    "42601": FaultKind.UNSUPPORTED,  # syntax_error
    "42883": FaultKind.UNSUPPORTED,  # undefined_function
    "53300": FaultKind.GONE,  # too_many_connections
    "53200": FaultKind.FULL,  # out_of_memory: the shared lock table
}
# connection_exception, operator_intervention, internal pooler errors
_GONE_CLASSES = ("08", "57P")


def fault_kind(error: BaseException) -> FaultKind | None:
    """Classify a driver's error, or return ``None`` for one that is not the server's."""
    state = sql_state(error)
    if state is None:
        return None
    if state.startswith(_GONE_CLASSES):
        return FaultKind.GONE
    return _KINDS.get(state, FaultKind.OTHER)


def sql_state(error: BaseException) -> str | None:
    """Return the SQLSTATE of a psycopg, asyncpg, psycopg2 or pg8000 error, or ``None``."""
    for name in ("sqlstate", "pgcode"):
        state = getattr(error, name, None)
        if isinstance(state, str):
            return state
    fields: Any = error.args[0] if error.args else None  # pg8000: the fields of the protocol message
    if not isinstance(fields, dict):
        return None
    return cast_type("dict[str, str]", fields).get("C")
