"""What MySQL and MariaDB tell of themselves and of the lock table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BigInteger, Table, text

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

__all__ = ["mysql_checks"]

_SETTINGS = Statement(
    "settings",
    text(
        "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version', 'version_comment', 'read_only', "
        "'super_read_only', 'transaction_isolation', 'tx_isolation', 'innodb_flush_log_at_trx_commit', "
        "'innodb_doublewrite', 'log_bin', 'binlog_format', 'wsrep_on', 'wsrep_provider', "
        "'group_replication_group_name', 'group_replication_single_primary_mode')"
    ),
)
# SYSDATE runs on during a statement; with --sysdate-is-now it is the time of the statement's start
_SYSDATE = Statement("sysdate", text("SELECT SYSDATE(6), SLEEP(0.002), SYSDATE(6)"))
_COLUMNS = text(
    "SELECT c.column_name, c.column_type, c.collation_name, t.engine, "
    "(SELECT COUNT(DISTINCT s.index_name) FROM information_schema.statistics s "
    "WHERE s.table_schema = t.table_schema AND s.table_name = t.table_name) "
    "FROM information_schema.tables t JOIN information_schema.columns c "
    "ON c.table_schema = t.table_schema AND c.table_name = t.table_name "
    "WHERE t.table_name = :name AND t.table_schema = COALESCE(NULLIF(:schema, ''), DATABASE())"
)
_BYTE_FOR_BYTE = {"utf8mb4_0900_bin", "utf8mb4_nopad_bin"}
_ON = {"ON", "1"}


def mysql_checks(leases: LeaseDialect, *, mariadb: bool) -> Checks:
    """Return the questions to MySQL or MariaDB."""
    table = leases.table
    where = {"schema": table.schema or "", "name": table.name}
    return Checks(
        clock_question(leases),
        [
            Check(_SETTINGS, lambda rows: _server(rows, "MariaDB" if mariadb else "MySQL")),
            Check(_SYSDATE, _sysdate),
        ],
        Check(Statement("columns", _COLUMNS), lambda rows: _table(table, rows, mariadb=mariadb), where),
        Statement("number", text("SELECT CONNECTION_ID()")),
        privileges(table),
    )


def _server(rows: Sequence[Row], name: str) -> list[Finding]:
    said = {str(row[0]).lower(): str(row[1]) for row in rows}
    findings = [Finding("ok", "server", f"{name} {said.get('version', 'of an unknown version')}")]
    if said.get("read_only", "OFF").upper() in {*_ON, "NO_LOCK", "NO_LOCK_NO_ADMIN"}:
        text_ = "this server is read-only: it may be a replica, whose locks are not the primary's"
        findings.append(Finding("failure", "read-only", text_, READ_ONLY))
    isolation = said.get("transaction_isolation") or said.get("tx_isolation") or "REPEATABLE-READ"
    if isolation != "READ-COMMITTED":
        findings.append(
            Finding(
                "note",
                "isolation",
                f"transactions are {isolation} by default: a guard whose snapshot is older than its grant "
                "raises TransactionConflict, and what was read before the lock may be old",
                "guard first in the transaction, or READ COMMITTED",
            )
        )
    if said.get("log_bin", "OFF").upper() in _ON and said.get("binlog_format", "").upper() == "STATEMENT":
        text_ = "binlog_format is STATEMENT, with which the server refuses writes at READ COMMITTED"
        findings.append(Finding("failure", "binlog", text_, "binlog_format = ROW, or MIXED"))
    findings += _cluster(said)
    return findings + durability(said, {"innodb_flush_log_at_trx_commit": ("1",)})


def _cluster(said: dict[str, str]) -> list[Finding]:
    galera = said.get("wsrep_on", "").upper() in _ON and said.get("wsrep_provider", "none") not in {
        "",
        "none",
    }
    if not galera and not said.get("group_replication_group_name"):
        return []
    kind = "a Galera cluster" if galera else "a replication group"
    text_ = (
        f"this server belongs to {kind}: leases exclude across its nodes, fenced() is not supported, and "
        "session locks are not where more than one node takes writes"
    )
    return [Finding("note", "cluster", text_)]


def _sysdate(rows: Sequence[Row]) -> list[Finding]:
    first, _, last = rows[0]
    if first != last:
        return []
    text_ = (
        "the server runs with --sysdate-is-now: a grant that waited in its statement lasts that much shorter"
    )
    return [Finding("warning", "sysdate", text_, "start the server without it")]


def _table(table: Table, rows: Sequence[Row], *, mariadb: bool) -> list[Finding]:
    findings = columns(table, [Stored(str(row[0]), _text(row[1])) for row in rows], _as_wanted)
    if findings[0].level != "ok":
        return findings
    name = table.fullname
    engine = str(rows[0][3])
    if engine.upper() != "INNODB":
        text_ = f"{name} is kept by {engine}, which has no transactions"
        findings.append(Finding("failure", "engine", text_, f"ALTER TABLE {name} ENGINE = InnoDB"))
    texts = {column.name for column in table.c if isinstance(column.type, ByteString)}
    loose = [
        f"{row[0]} ({row[2]})"
        for row in rows
        if row[0] in texts and row[2] is not None and row[2] not in _BYTE_FOR_BYTE
    ]
    if loose:
        good = "utf8mb4_nopad_bin" if mariadb else "utf8mb4_0900_bin"
        text_ = (
            f"different keys may be one in {name}, which does not compare byte for byte: {', '.join(loose)}"
        )
        findings.append(Finding("failure", "collation", text_, f"give them the collation {good}"))
    if int(rows[0][4]) > 1:
        text_ = f"{name} has more indexes than the library makes, which each update has to change"
        findings.append(Finding("note", "storage", text_, "keep no index but that of the key"))
    return findings


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _as_wanted(wanted: Any, found: str) -> bool:
    found = found.lower()
    if isinstance(wanted, ByteString):
        return found.startswith(("varchar", "varbinary")) and wide_enough(wanted, found)
    if isinstance(wanted, BigInteger):
        return found.startswith("bigint")
    return found == "datetime(6)"
