"""What PostgreSQL tells of itself and of the lock table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BigInteger, Table, func, select, text

from sqllocks.diagnosis import Finding
from sqllocks.dialects.base import LeaseDialect, Row, Statement
from sqllocks.dialects.checks import (
    READ_ONLY,
    Check,
    Checks,
    Stored,
    clock_question,
    columns,
    durability,
    privileges,
    wide_enough,
)
from sqllocks.schema import ByteString

__all__ = ["postgresql_checks"]

_OLDEST = 140000
_SETTINGS = Statement(
    "settings",
    text(
        "SELECT name, setting FROM pg_catalog.pg_settings WHERE name IN ('server_version', "
        "'server_version_num', 'transaction_read_only', 'default_transaction_isolation', "
        "'synchronous_commit', 'fsync', 'full_page_writes', 'server_encoding', 'in_hot_standby') "
        "UNION ALL SELECT 'recovery', CAST(pg_catalog.pg_is_in_recovery() AS text)"
    ),
)
_COLUMNS = text(
    "SELECT CAST(a.attname AS text), pg_catalog.format_type(a.atttypid, a.atttypmod), "
    "CAST(o.collname AS text), coalesce(o.collisdeterministic, true), CAST(c.relpersistence AS text), "
    "coalesce(pg_catalog.array_to_string(c.reloptions, ' '), ''), "
    "(SELECT count(*) FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid) "
    "FROM pg_catalog.pg_class c "
    "JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped "
    "LEFT JOIN pg_catalog.pg_collation o ON o.oid = a.attcollation "
    "WHERE c.oid = pg_catalog.to_regclass(CASE WHEN CAST(:schema AS text) = '' "
    "THEN pg_catalog.quote_ident(CAST(:name AS text)) "
    "ELSE pg_catalog.quote_ident(CAST(:schema AS text)) || '.' || "
    "pg_catalog.quote_ident(CAST(:name AS text)) END)"
)
_TYPES = {"BIGINT": "bigint", "DATETIME": "timestamp with time zone"}


def postgresql_checks(leases: LeaseDialect) -> Checks:
    """Return the questions to PostgreSQL."""
    table = leases.table
    where = {"schema": table.schema or "", "name": table.name}
    return Checks(
        clock_question(leases),
        [Check(_SETTINGS, _server)],
        Check(Statement("columns", _COLUMNS), lambda rows: _table(table, rows), where),
        Statement("number", select(func.pg_catalog.pg_backend_pid(type_=BigInteger))),
        privileges(table),
    )


def _server(rows: Sequence[Row]) -> list[Finding]:
    said = {str(name): str(value) for name, value in rows}
    findings = [Finding("ok", "server", f"PostgreSQL {said.get('server_version', 'of an unknown version')}")]
    if int(said.get("server_version_num", _OLDEST)) < _OLDEST:
        remedy = "use PostgreSQL 14 or later"
        findings.append(Finding("failure", "version", "this server is older than PostgreSQL 14", remedy))
    if said.get("recovery") in {"true", "t"}:
        findings.append(
            Finding("failure", "standby", "this server is a standby, which takes no writes", READ_ONLY)
        )
    elif said.get("transaction_read_only") == "on":
        findings.append(
            Finding("failure", "read-only", "transactions are read-only here by default", READ_ONLY)
        )
    isolation = said.get("default_transaction_isolation", "read committed")
    if isolation != "read committed":
        findings.append(
            Finding(
                "note",
                "isolation",
                f"transactions are {isolation} by default: a guard whose snapshot is older than its grant "
                "raises TransactionConflict, and statements on locks are sent again now and then",
                "guard first in the transaction, or READ COMMITTED",
            )
        )
    if said.get("server_encoding", "UTF8") != "UTF8":
        findings.append(
            Finding(
                "warning",
                "encoding",
                f"the database is encoded in {said['server_encoding']}: keys beyond it cannot be stored",
                "use a database in UTF8",
            )
        )
    safe = {"synchronous_commit": ("on", "local", "remote_write", "remote_apply"), "fsync": ("on",)}
    return findings + durability(said, {**safe, "full_page_writes": ("on",)})


def _table(table: Table, rows: Sequence[Row]) -> list[Finding]:
    findings = columns(table, [Stored(row[0], row[1]) for row in rows], _as_wanted)
    if findings[0].level != "ok":
        return findings
    name = table.fullname
    loose = [row[0] for row in rows if row[0] in table.c and not row[3]]
    if loose:
        text_ = f"{', '.join(loose)} of {name} compare different keys as equal (a nondeterministic collation)"
        findings.append(Finding("failure", "collation", text_, 'use the collation "C"'))
    others = [row[0] for row in rows if isinstance(_type(table, row[0]), ByteString) and row[2] != "C"]
    if others and not loose:
        text_ = (
            f'{", ".join(others)} of {name} have another collation than "C": correct, and slower to compare'
        )
        findings.append(Finding("note", "collation", text_))
    persistence, options, indexes = rows[0][4:7]
    if persistence == "u":
        text_ = f"{name} is UNLOGGED: a crash of the server empties it, and held locks are granted again"
        findings.append(Finding("warning", "unlogged", text_, f"ALTER TABLE {name} SET LOGGED"))
    if "fillfactor" not in options or int(indexes) > 1:
        text_ = (
            f"{name} has other storage settings or more indexes than the library makes, and so more to write"
        )
        remedy = f"ALTER TABLE {name} SET (fillfactor = 50), and no index but that of the key"
        findings.append(Finding("note", "storage", text_, remedy))
    return findings


def _type(table: Table, name: str) -> Any:
    return table.c[name].type if name in table.c else None


def _as_wanted(wanted: Any, found: str) -> bool:
    if isinstance(wanted, ByteString):
        return found in {"text", "character varying"} or (
            found.startswith("character varying") and wide_enough(wanted, found)
        )
    kind = "BIGINT" if isinstance(wanted, BigInteger) else "DATETIME"
    return found == _TYPES[kind]
