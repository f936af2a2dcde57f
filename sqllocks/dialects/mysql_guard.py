"""The guard on MySQL and MariaDB: a locking read, which shows the newest row at every isolation level.

One statement shows both views: the row as it is now, locked, and the token that the transaction's plain
reads see. Where these differ, the transaction would go on to read data from before the grant.

``UTC_TIMESTAMP(6)`` does not depend on the session's time zone, which is the application's own here. It
stands still while the statement waits for the row; a lease that runs out meanwhile is still the newest
one, and pinned from then on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from sqlalchemy import ColumnElement, Integer, Select, func, literal_column, select, update
from sqlalchemy.dialects.mysql import DATETIME

from sqllocks.dialects.base import Row, Statement
from sqllocks.dialects.guards import Claimed, GuardDialect, GuardedRow, View, key_parameter
from sqllocks.dialects.mysql import MysqlLeases

__all__ = ["MysqlClusterGuard", "MysqlGuard"]

_CHANGED_SINCE_THE_SNAPSHOT = 1020  # MariaDB with innodb_snapshot_isolation


class MysqlGuard(GuardDialect):
    """Guard statements for one server that takes all writes."""

    stops_own: ClassVar[bool] = True
    _read_only: ClassVar[bool] = True

    def __init__(self, leases: MysqlLeases) -> None:
        super().__init__(leases)
        self._table = leases.table
        self.guard = self.bounded = Statement("guard", self._guard())

    def view(self, rows: Sequence[Row]) -> View:
        if not rows:
            return View(None)
        owner, attempt, token, live, snapshot, _ = rows[0]
        return View(GuardedRow(owner, attempt, token, bool(live), snapshot))

    def autocommits(self, connection: Any, rows: Sequence[Row]) -> bool:
        return bool(rows) and bool(rows[0][-1])

    def fence(self, claim: Claimed) -> Select[*tuple[Any, ...]]:
        return claim.row_of(self._table, self._table.c.expires_at > _now()).with_for_update(read=True)

    def retryable(self, error: BaseException) -> bool | None:
        if error.args and error.args[0] == _CHANGED_SINCE_THE_SNAPSHOT:
            return False
        return super().retryable(error)

    def _guard(self) -> Select[*tuple[Any, ...]]:
        row, plain = self._table.alias("l"), self._table.alias("plain")
        snapshot = select(plain.c.fencing_token).where(plain.c.lock_key == row.c.lock_key)
        return (
            select(
                row.c.owner_token,
                row.c.attempt,
                row.c.fencing_token,
                (row.c.expires_at > _now()).label("live"),
                # a locking clause does not reach into a sub-select
                snapshot.correlate(row).scalar_subquery().label("snapshot"),
                literal_column("@@autocommit", Integer).label("autocommit"),
            )
            .where(row.c.lock_key == key_parameter())
            .with_for_update(read=self._read_only)
        )


class MysqlClusterGuard(MysqlGuard):
    """Guard statements for Galera and group replication, whose nodes know nothing of each other's locks.

    There two transactions meet when one commits, and only by the rows that both changed. So this guard
    changes the row: ``acquired_at``, which nothing decides by, goes one microsecond up and down.
    """

    _read_only: ClassVar[bool] = False

    def __init__(self, leases: MysqlLeases) -> None:
        super().__init__(leases)
        table, acquired_at = self._table, self._table.c.acquired_at
        odd = func.mod(func.microsecond(acquired_at), literal_column("2"))
        one: ColumnElement[int] = literal_column("1")
        step = one - literal_column("2") * odd
        changed = func.timestampadd(literal_column("MICROSECOND"), step, acquired_at)
        change = update(table).where(table.c.lock_key == key_parameter()).values(acquired_at=changed)
        self.mark = Statement("mark", change, rows=False)

    def view(self, rows: Sequence[Row]) -> View:
        return View(super().view(rows).row, lagging=True)


def _now() -> ColumnElement[Any]:
    return literal_column("UTC_TIMESTAMP(6)", DATETIME(fsp=6))
