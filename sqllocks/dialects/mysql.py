"""Leases on MySQL and MariaDB: change what is free, then read what is still open.

A change is ``INSERT … SELECT … FOR UPDATE SKIP LOCKED ON DUPLICATE KEY UPDATE`` of existing rows: one
autocommit statement that takes the free rows and neither waits for nor is undone by a locked one, as
a plain upsert of several rows is. MariaDB's ``RETURNING`` names the rows it changed; MySQL only counts
them, so the rest is read afterwards. Keys without a row are inserted by a statement of their own.

``SYSDATE(6)`` is the wall clock in the session's time zone, which sessions of the library set to UTC.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, ClassVar

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    String,
    Table,
    Text,
    and_,
    bindparam,
    case,
    column,
    delete,
    exists,
    func,
    literal_column,
    select,
)
from sqlalchemy.dialects.mysql import DATETIME, insert
from sqlalchemy.sql.elements import ClauseElement
from sqlalchemy.sql.selectable import FromClause

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
)
from sqllocks.dialects.grants import LEASE, new_rows
from sqllocks.dialects.mysql_errors import fault_kind
from sqllocks.dialects.mysql_waiting import locking_sessions
from sqllocks.schema import from_microseconds

__all__ = ["UNTOLD", "MysqlLeases"]

_TEXT = "VARCHAR({}) CHARACTER SET utf8mb4"
# the fields of a batch's elements, and their types
_PARTS: Mapping[str, tuple[str, Any]] = {
    "k": (_TEXT.format(255), String),
    "o": (_TEXT.format(128), String),
    "a": (_TEXT.format(32), String),
    "t": ("BIGINT", BigInteger),
    "h": (_TEXT.format(255), String),
}

_FIELDS = {
    "k": "key",
    "o": "owner",
    "a": "attempt",
    "t": "ttl",
    "h": "holder",
    "n": "name",
    "l": "server_lock",
}

UNTOLD = 1
"""The number that comes back with a grant whose token must be read."""


def _done(token: Any = 0, expires_at: int | None = None) -> Answer:
    moment = from_microseconds(expires_at) if expires_at is not None else None
    return Answer(Verdict.DONE, int(token), moment)


class MysqlLeases(LeaseDialect):
    """Lease statements for MySQL 8.0.17 and later, and MariaDB 10.6 and later."""

    name: ClassVar[str] = "mysql"
    parts: ClassVar[Mapping[str, tuple[str, Any]]] = _PARTS
    """The fields of a batch's elements in their order, and their types for the server and for SQLAlchemy."""
    changing: ClassVar[str] = "koat"
    """The fields that a change of one's own rows needs."""

    def __init__(self, table: Table, *, mariadb: bool = False) -> None:
        super().__init__(table)
        self.mariadb = mariadb
        self._row = table.alias("l")
        self.counts = not mariadb
        self._purging(remove=delete(table))
        everything = "".join(self.parts)
        self.claim = self._both("claim", self._takeable, self._grant, everything)
        self.insert = Statement("insert", self._insert(self._wanted()), rows=False)
        self.renew = self._both("renew", self._own, self._renewed, self.changing)
        self.revive = self._both("revive", self._was_own, self._renewed, self.changing)
        at_once = self._both("release", self._releasable, self._freed_now, self.changing)
        release = self._both("release", self._releasable, self._freed, self.changing)
        self.release = replace(release, at_once=at_once)
        self.break_ = self._both("break", self._any, self._broken, self.changing)
        if self.counts:
            self.won = self._selected("won", self._has, self._told(self._row))
            self.own = self._selected("own", self._releasable)
            self.lockers = locking_sessions(table, self.clock())

    def _before(self, span: ColumnElement[int]) -> ColumnElement[Any]:
        return func.timestampadd(literal_column("MICROSECOND"), -span, self.clock())

    def clock(self) -> ColumnElement[Any]:
        return literal_column("SYSDATE(6)", DATETIME(fsp=6))

    def session_setup(self) -> Sequence[str]:
        # nothing waits for another's lock: MariaDB can say so, MySQL's least is a second
        wait = 0 if self.mariadb else 1
        return (
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",  # gap locks of others deadlock
            f"SET time_zone = '+00:00', innodb_lock_wait_timeout = {wait}, lock_wait_timeout = 2, "
            "sql_notes = 0",
        )

    def asked(self, statement: Statement, wants: Sequence[Want]) -> tuple[Statement, Parameters]:
        # a minimum hold is rare, and its many parameters cost the client and the parser something
        if statement.at_once is not None and not any(want.ttl for want in wants):
            statement = statement.at_once
        if len(wants) == 1 and statement.single is not None:
            element = self._element(wants[0])
            if all(self._plain(value) for value in element.values() if isinstance(value, str)):
                return statement.single, element
        return statement, self._packed(wants, statement.needs or self.parts)

    def _plain(self, text: str) -> bool:
        # other characters would depend on the connection's character set
        return text.isascii()

    def _element(self, want: Want) -> dict[str, Any]:
        return {"k": want.key, "o": want.owner, "a": want.attempt, "t": want.ttl, "h": want.holder}

    def batch(self, wants: Sequence[Want]) -> Parameters:
        return self._packed(wants, self.parts)

    def _packed(self, wants: Sequence[Want], fields: Iterable[str]) -> Parameters:
        # ASCII only, so that the connection's character set does not matter
        fields_of = attrgetter(*(_FIELDS[name] for name in fields))
        return {"batch": json.dumps(list(map(fields_of, wants)), separators=(",", ":"))}

    def keys(self, keys: Sequence[str]) -> Parameters:
        return {"batch": json.dumps([[key] for key in keys], separators=(",", ":"))}

    def told(self, result: Result, wants: Sequence[Want]) -> dict[str, Answer]:
        if len(wants) == 1 and result.count > 0 and result.number > UNTOLD:
            expires_at = from_microseconds(result.number + wants[0].ttl)
            return {wants[0].key: Answer(Verdict.DONE, result.number, expires_at)}
        return {row[0]: _done(*row[1:]) for row in result.rows}

    def instant(self, value: Any) -> datetime:
        naive: datetime = value
        return naive.replace(tzinfo=UTC)

    @staticmethod
    def fault_kind(error: BaseException) -> FaultKind | None:
        return fault_kind(error)

    def _is_wanted(self) -> ColumnElement[bool]:
        return self.table.c.lock_key.in_(select(self._wanted("k").c.k))

    # -- the parts of a batch statement

    def _wanted(self, fields: str = "") -> FromClause:
        """The first ``fields`` of a batch's elements, or all."""
        parts = [(name, *self.parts[name]) for name in fields or self.parts]
        typed = ", ".join(f"{name} {kind} PATH '$[{place}]'" for place, (name, kind, _) in enumerate(parts))
        columns: ColumnElement[Any] = literal_column(f"'$[*]' COLUMNS ({typed})")
        return func.json_table(bindparam("batch", type_=Text), columns).table_valued(
            *(column(name, kind) for name, _, kind in parts), name="w"
        )

    def _granted(self, want: FromClause) -> tuple[ColumnElement[str], ColumnElement[str]]:
        """Return the kind and the server-side lock that a grant writes."""
        return LEASE

    def _takeable(self, want: FromClause) -> ColumnElement[bool]:
        """Return the condition under which a row may be taken over."""
        return self._free()

    def _releasable(self, want: FromClause) -> ColumnElement[bool]:
        return self._own(want)

    def _one(self) -> FromClause:
        """The only element as a row of plain parameters, which the server need not parse as JSON."""
        columns = (bindparam(name, type_=kind).label(name) for name, (_, kind) in self.parts.items())
        return select(*columns).subquery("w")

    def _both(
        self,
        name: str,
        which: Callable[[FromClause], ColumnElement[bool]],
        values: Callable[[FromClause], Mapping[str, Any]],
        fields: str,
    ) -> Statement:
        """Return a statement for a batch, and its form for a single element."""
        one, many = self._one(), self._wanted(fields)
        single = self._change(name, one, which(one), values(one))
        return replace(self._change(name, many, which(many), values(many)), single=single, needs=fields)

    def _grant(self, want: FromClause) -> Mapping[str, Any]:
        """What a claim sets, from left to right: later values are computed from the columns set before."""
        kind, server_lock = self._granted(want)
        columns = self.table.c
        token = self._token(self._since_epoch(columns.acquired_at))
        return {
            "owner_token": want.c.o,
            "attempt": want.c.a,
            "kind": kind,
            "holder": want.c.h,
            "server_lock": server_lock,
            "acquired_at": self.clock(),
            "fencing_token": token,
            "expires_at": self._after(columns.acquired_at, want),
        }

    def _token(self, moment: ColumnElement[int]) -> ColumnElement[Any]:
        return self.telling(moment) if not self.mariadb else self._greater(moment)

    def _greater(self, moment: ColumnElement[int]) -> ColumnElement[Any]:
        return func.greatest(self.table.c.fencing_token + literal_column("1"), moment)

    def telling(self, moment: ColumnElement[int]) -> ColumnElement[Any]:
        """Return a new token that comes back with the count, where it is the moment of the grant.

        The expiry lies the ttl after it, so nothing need be read.
        """
        token = self._greater(moment)
        told = case((token == moment, moment), else_=literal_column(str(UNTOLD), BigInteger))
        return token + literal_column("0") * func.last_insert_id(told)

    def _renewed(self, want: FromClause) -> Mapping[str, Any]:
        return {"expires_at": self._expiry(want)}

    def _freed(self, want: FromClause) -> Mapping[str, Any]:
        return self._released(self.table.c, want.c, lambda start: self._after(start, want))

    def _freed_now(self, _: FromClause) -> Mapping[str, Any]:
        return {"attempt": NOTHING, "expires_at": self.clock()}

    def _broken(self, want: FromClause) -> Mapping[str, Any]:
        return {"owner_token": want.c.o, "attempt": NOTHING, "expires_at": self.clock()}

    def _change(
        self, name: str, want: FromClause, which: ColumnElement[bool], values: Mapping[str, Any]
    ) -> Statement:
        table = self.table
        row = self._row
        rows = (
            select(*(row.c[each.name] for each in self._columns))
            .select_from(want.join(row, row.c.lock_key == want.c.k))
            .prefix_with("STRAIGHT_JOIN")
            .with_hint(row, "FORCE INDEX (PRIMARY)")
            .where(which)
            .order_by(want.c.k)
            # MySQL demands the table where a JSON_TABLE is part of the join, MariaDB knows no OF
            .with_for_update(of=None if self.mariadb else row, skip_locked=True)
        )
        change = (
            insert(table)
            .from_select([each.name for each in self._columns], rows)
            .on_duplicate_key_update(list(values.items()))
        )
        if not self.mariadb:
            return Statement(name, change, rows=False)
        told: list[ColumnElement[Any]] = [table.c.lock_key]
        if name != "release":  # nobody asks for more, and each value costs the client something
            told += self._told(table)
        return Statement(name, change.returning(*told))

    def _told(self, table: FromClause) -> list[ColumnElement[Any]]:
        # an integer is read at a fifth of the price of a DATETIME, which drivers in Python parse
        return [table.c.fencing_token, self._since_epoch(table.c.expires_at)]

    def _selected(
        self,
        name: str,
        which: Callable[[FromClause], ColumnElement[bool]],
        told: Sequence[ColumnElement[Any]] = (),
    ) -> Statement:
        """Return a read of those rows of a batch that ``which`` is true of."""
        want = self._wanted(self.changing)
        row = self._row
        rows = select(row.c.lock_key, *told).select_from(want.join(row, row.c.lock_key == want.c.k))
        rows = rows.prefix_with("STRAIGHT_JOIN").with_hint(row, "FORCE INDEX (PRIMARY)").where(which(want))
        return Statement(name, rows, needs=self.changing)

    def _has(self, want: FromClause) -> ColumnElement[bool]:
        return self._row.c.attempt == want.c.a

    def _insert(self, want: FromClause) -> ClauseElement:
        rows = new_rows(
            want,
            self._granted(want),
            token=self._microseconds(),
            now=self.clock(),
            expires_at=self._expiry(want),
        ).order_by(want.c.k)
        if not self.mariadb:
            # another transaction's uncommitted row of the key: an error at once, not a wait
            taken = select(self._row.c.lock_key).where(self._row.c.lock_key == want.c.k)
            rows = rows.where(~exists(taken.with_for_update(nowait=True)))
        made = insert(self.table).from_select([c.name for c in self._columns], rows)
        # somebody else's row of the same key stays as it is (IGNORE would raise warnings)
        return made.on_duplicate_key_update(lock_key=self.table.c.lock_key)

    def _free(self) -> ColumnElement[bool]:
        row = self._row
        return (row.c.attempt == NOTHING) | (row.c.expires_at <= self.clock())

    def _any(self, want: FromClause) -> ColumnElement[bool]:
        row = self._row
        same_attempt = (want.c.a == NOTHING) | (row.c.attempt == want.c.a)
        return and_(same_attempt, row.c.attempt != NOTHING, row.c.expires_at > self.clock())

    def _own(self, want: FromClause) -> ColumnElement[bool]:
        return and_(self._row.c.owner_token == want.c.o, self._any(want))

    def _was_own(self, want: FromClause) -> ColumnElement[bool]:
        row = self._row
        return and_(row.c.owner_token == want.c.o, row.c.attempt == want.c.a, row.c.attempt != NOTHING)

    def _expiry(self, want: FromClause) -> ColumnElement[Any]:
        return self._after(self.clock(), want)

    def _after(self, start: ColumnElement[Any], want: FromClause) -> ColumnElement[Any]:
        return func.timestampadd(literal_column("MICROSECOND"), want.c.t, start)

    def _microseconds(self) -> ColumnElement[int]:
        return self._since_epoch(self.clock())

    def _since_epoch(self, moment: ColumnElement[Any]) -> ColumnElement[int]:
        return func.timestampdiff(
            literal_column("MICROSECOND"), literal_column("'1970-01-01'"), moment, type_=BigInteger
        )
