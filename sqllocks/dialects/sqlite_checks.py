"""What SQLite tells of itself and of the lock table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Table, text

from sqllocks.diagnosis import Finding
from sqllocks.dialects.base import LeaseDialect, Row, Statement
from sqllocks.dialects.checks import Check, Checks, Stored, clock_question, columns, durability, privileges

__all__ = ["sqlite_checks"]

_LEVELS = ("OFF", "NORMAL", "FULL", "EXTRA")
_SETTINGS = Statement(
    "settings",
    text(
        "SELECT sqlite_version(), (SELECT synchronous FROM pragma_synchronous), "
        "(SELECT journal_mode FROM pragma_journal_mode)"
    ),
)
_COLUMNS = text("SELECT name, type FROM pragma_table_info(:name, :schema)")


def sqlite_checks(leases: LeaseDialect) -> Checks:
    """Return the questions to SQLite."""
    table = leases.table
    where = {"schema": table.schema or "main", "name": table.name}
    return Checks(
        clock_question(leases),
        [Check(_SETTINGS, _server)],
        Check(Statement("columns", _COLUMNS), lambda rows: _table(table, rows), where),
        further=privileges(table),
    )


def _server(rows: Sequence[Row]) -> list[Finding]:
    version, synchronous, journal = rows[0]
    said = {"synchronous": _LEVELS[int(synchronous)], "journal_mode": str(journal)}
    return [
        Finding("ok", "server", f"SQLite {version}"),
        Finding(
            "note",
            "one-writer",
            "SQLite has one writer for the whole file, and excludes the processes of one machine; there are "
            "no session locks, and electors lead with leases",
        ),
        *durability(
            said,
            {
                "synchronous": ("full", "normal", "extra"),
                "journal_mode": ("delete", "truncate", "persist", "wal"),
            },
        ),
    ]


def _table(table: Table, rows: Sequence[Row]) -> list[Finding]:
    # a column's declared type means little here, and whoever made the table chose it
    return columns(table, [Stored(str(row[0]), str(row[1])) for row in rows], _as_wanted)


def _as_wanted(_wanted: Any, _found: str) -> bool:
    return True
