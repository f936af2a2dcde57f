"""Leases on SQLite: one writer at a time, so each statement takes the file's write lock first.

An ``INSERT`` or ``UPDATE`` in autocommit takes that lock before it reads. Winners come back by
``RETURNING``, the rest is read afterwards. The clock has milliseconds there.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Integer,
    Select,
    Table,
    Text,
    and_,
    bindparam,
    cast,
    column,
    delete,
    func,
    literal_column,
    select,
    text,
    true,
    update,
)
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.sql.elements import ClauseElement
from sqlalchemy.sql.selectable import CTE

from sqllocks.dialects.base import (
    NOTHING,
    Answer,
    FaultKind,
    LeaseDialect,
    Parameters,
    Result,
    Statement,
    Verdict,
    Want,
    constant,
)
from sqllocks.dialects.grants import LEASE, new_rows
from sqllocks.schema import from_microseconds

__all__ = ["SqliteLeases"]


# https://www.sqlite.org/rescode.html (primary codes: the low byte)
_KINDS: Mapping[int, FaultKind] = {
    sqlite3.SQLITE_BUSY: FaultKind.LOCKED,
    sqlite3.SQLITE_LOCKED: FaultKind.LOCKED,
    sqlite3.SQLITE_SCHEMA: FaultKind.CONFLICT,
    sqlite3.SQLITE_READONLY: FaultKind.READ_ONLY,
    sqlite3.SQLITE_PERM: FaultKind.FORBIDDEN,
    sqlite3.SQLITE_AUTH: FaultKind.FORBIDDEN,
    sqlite3.SQLITE_CANTOPEN: FaultKind.GONE,
}
_NO_TABLE = ("no such table", "no such column", "has no column named")


class SqliteLeases(LeaseDialect):
    """Lease statements for SQLite 3.35 and later."""

    name: ClassVar[str] = "sqlite"

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._purging(remove=delete(table), skip_locked=False)
        want = self._wanted().cte("want")
        released = self._released(table.c, want.c, lambda start: start + want.c.t)
        broken = {"owner_token": want.c.o, "attempt": NOTHING, "expires_at": self.clock()}
        self.commits = Statement("commits", text("PRAGMA data_version"))
        self.claim = Statement("claim", self._claim())
        self.renew = self._change("renew", want, self._own(want), {"expires_at": self._expiry(want.c.t)})
        self.revive = self._change(
            "revive", want, self._was_own(want), {"expires_at": self._expiry(want.c.t)}
        )
        self.release = self._change("release", want, self._own(want), released)
        self.break_ = self._change("break", want, self._any(want), broken)

    def _before(self, span: ColumnElement[int]) -> ColumnElement[Any]:
        return self.clock() - span

    def _microseconds(self) -> ColumnElement[int]:
        return self.clock()

    def clock(self) -> ColumnElement[Any]:
        """Microseconds since the epoch; within a statement ``'now'`` is one instant."""
        seconds = cast(func.strftime(literal_column("'%s'"), constant("'now'")), Integer)
        fraction = func.substr(func.strftime(literal_column("'%f'"), constant("'now'")), literal_column("4"))
        return seconds * literal_column("1000000") + cast(fraction, Integer) * literal_column("1000")

    def session_setup(self) -> Sequence[str]:
        # the library asks again by itself, sooner than SQLite's own back-off of up to 100 ms would
        return ("PRAGMA busy_timeout = 8",)

    def batch(self, wants: Sequence[Want]) -> Parameters:
        return {
            "batch": json.dumps(
                [[want.key, want.owner, want.attempt, want.ttl, want.holder] for want in wants],
                ensure_ascii=False,
            )
        }

    def keys(self, keys: Sequence[str]) -> Parameters:
        return {"batch": json.dumps([[key] for key in keys], ensure_ascii=False)}

    def told(self, result: Result, wants: Sequence[Want]) -> dict[str, Answer]:
        return {
            key: Answer(Verdict.DONE, token, self.instant(expires_at))
            for key, token, expires_at in result.rows
        }

    def instant(self, value: Any) -> datetime:
        # a statement that ran through SQLAlchemy gives the column's own type
        return value if isinstance(value, datetime) else from_microseconds(value)

    @staticmethod
    def fault_kind(error: BaseException) -> FaultKind | None:
        if not isinstance(error, sqlite3.Error):
            return None
        if any(text in str(error) for text in _NO_TABLE):
            return FaultKind.NO_TABLE
        if "unknown database" in str(error):
            return FaultKind.NO_SCHEMA
        code = getattr(error, "sqlite_errorcode", None)
        if code is None:
            # the module itself objects, for example to a closed connection
            return FaultKind.GONE if isinstance(error, sqlite3.ProgrammingError) else FaultKind.OTHER
        if "syntax error" in str(error):
            return FaultKind.UNSUPPORTED
        return _KINDS.get(code & 0xFF, FaultKind.OTHER)

    def _is_wanted(self) -> ColumnElement[bool]:
        return self.table.c.lock_key.in_(select(self._wanted().cte("want").c.k))

    # -- the parts of a batch statement

    def _wanted(self) -> Select[*tuple[Any, ...]]:
        element = func.json_each(bindparam("batch", type_=Text)).table_valued(column("value", Text)).c.value
        parts = (("k", Text), ("o", Text), ("a", Text), ("t", BigInteger), ("h", Text))
        return select(
            *(
                func.json_extract(element, literal_column(f"'$[{position}]'"), type_=kind).label(name)
                for position, (name, kind) in enumerate(parts)
            )
        )

    def _claim(self) -> ClauseElement:
        columns = self.table.c
        want = self._wanted().subquery("w")
        rows = new_rows(
            want, LEASE, token=self.clock(), now=self.clock(), expires_at=self._expiry(want.c.t)
        ).where(true())  # without a WHERE, SQLite reads ON CONFLICT as a join condition
        claim = insert(self.table).from_select([each.name for each in self._columns], rows)
        given = claim.excluded
        return claim.on_conflict_do_update(
            index_elements=[columns.lock_key],
            set_={
                "owner_token": given.owner_token,
                "attempt": given.attempt,
                "kind": given.kind,
                "holder": given.holder,
                "server_lock": given.server_lock,
                "fencing_token": func.max(columns.fencing_token + literal_column("1"), given.fencing_token),
                "acquired_at": given.acquired_at,
                "expires_at": given.expires_at,
            },
            where=self.free,
        ).returning(columns.lock_key, columns.fencing_token, columns.expires_at)

    def _change(
        self, name: str, want: CTE, which: ColumnElement[bool], values: Mapping[str, Any]
    ) -> Statement:
        columns = self.table.c
        return Statement(
            name,
            update(self.table)
            .where(columns.lock_key == want.c.k, which)
            .values(values)
            .returning(columns.lock_key, columns.fencing_token, columns.expires_at),
        )

    def _own(self, want: CTE) -> ColumnElement[bool]:
        return and_(self.table.c.owner_token == want.c.o, self._any(want))

    def _any(self, want: CTE) -> ColumnElement[bool]:
        return and_((want.c.a == NOTHING) | (self.table.c.attempt == want.c.a), self.held)

    def _was_own(self, want: CTE) -> ColumnElement[bool]:
        columns = self.table.c
        return and_(columns.owner_token == want.c.o, columns.attempt == want.c.a, columns.attempt != NOTHING)

    def _expiry(self, ttl: ColumnElement[int]) -> ColumnElement[Any]:
        return self.clock() + ttl
