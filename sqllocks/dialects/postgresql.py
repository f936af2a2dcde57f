"""Leases on PostgreSQL: statements that answer for what they did, and cost little where they do it.

What a statement leaves open, because the row is held, pinned or not there, is asked afterwards: then nothing
was won, and one more question costs nobody a lease.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import CTE, BigInteger, ColumnElement, Table, cast, null, true
from sqlalchemy.sql.elements import ClauseElement
from sqlalchemy.sql.selectable import FromClause

from sqllocks.dialects.base import constant
from sqllocks.dialects.postgresql_rows import PostgresqlRows
from sqllocks.dialects.postgresql_waiting import notified

__all__ = ["PostgresqlLeases"]

Which = Callable[[FromClause, CTE], ColumnElement[bool]]
_DONE = constant("'done'").label("verdict")
_UNTOLD: ColumnElement[int] = cast(null(), BigInteger)


class PostgresqlLeases(PostgresqlRows):
    """Lease statements for PostgreSQL 14 and later."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self.claim_free = self.both("claim_free", self._claim_free, "koath")
        self.renew = self.both("renew", lambda want: self._prolong(want, self._own), "koat")
        self.revive = self.both("revive", lambda want: self._prolong(want, self._was_own), "koat")
        # a release that a crash loses only lasts until its ttl, so it need not wait for the log
        self.release = self.both("release", self._free, "koats", synchronous_commit="off")

    def _claim_free(self, want: CTE) -> ClauseElement:
        columns = self.table.c
        free = self.locked("free", want, self.free)
        return self.taken(free).returning(columns.lock_key, _DONE, columns.fencing_token, columns.expires_at)

    def _prolong(self, want: CTE, which: Which) -> ClauseElement:
        columns = self.table.c
        mine = self.locked("mine", want, which(self.table, want), key_share=True)
        changed = self.at(mine).values(self.prolonged(mine))
        return changed.returning(columns.lock_key, _DONE, columns.fencing_token, columns.expires_at)

    def _free(self, want: CTE) -> ClauseElement:
        mine = self.locked("mine", want, self._own(self.table, want), key_share=True)
        freed = self.at(mine).values(self.freed(mine))
        told = notified(true(), mine.c.s)
        return freed.returning(self.table.c.lock_key, _DONE, _UNTOLD, null().label("expires_at"), told)
