"""The guard on SQLite: it writes, because only a writer keeps others from the file.

The statement begins with ``UPDATE``: the ``sqlite3`` module opens a transaction by itself before that
word, and not before ``WITH``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from sqlalchemy import Select, update

from sqllocks.dialects.base import Row, Statement
from sqllocks.dialects.guards import Claimed, GuardDialect, GuardedRow, View, key_parameter
from sqllocks.dialects.sqlite import SqliteLeases

__all__ = ["SqliteGuard"]


class SqliteGuard(GuardDialect):
    """Guard statements for SQLite 3.35 and later."""

    stops_own: ClassVar[bool] = True

    def __init__(self, leases: SqliteLeases) -> None:
        super().__init__(leases)
        self._leases = leases
        columns = leases.table.c
        change = (
            update(leases.table)
            .where(columns.lock_key == key_parameter())
            .values(fencing_token=columns.fencing_token)
            .returning(
                columns.owner_token,
                columns.attempt,
                columns.fencing_token,
                (columns.expires_at > leases.clock()).label("live"),
            )
        )
        self.guard = self.bounded = Statement("guard", change)

    def view(self, rows: Sequence[Row]) -> View:
        if not rows:
            return View(None)
        # who writes cannot have an older snapshot: SQLite refuses it the file
        owner, attempt, token, live = rows[0]
        return View(GuardedRow(owner, attempt, token, bool(live), token))

    def autocommits(self, connection: Any, rows: Sequence[Row]) -> bool:
        return not connection.driver_connection.in_transaction

    def fence(self, claim: Claimed) -> Select[*tuple[Any, ...]]:
        """Return a plain select: the statement around it writes, so it has the file to itself already."""
        live = self._leases.table.c.expires_at > self._leases.clock()
        return claim.row_of(self._leases.table, live)
