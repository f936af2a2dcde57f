"""Rows of the lock table on PostgreSQL: each statement answers for its whole batch in one round trip.

A claim takes free rows with ``FOR UPDATE SKIP LOCKED`` before it changes them. That lock conflicts
with the ``FOR KEY SHARE`` of a guard, so a guarded row is skipped; the plain takeover by
``ON CONFLICT DO UPDATE`` would pass it. Renewals and releases lock ``FOR NO KEY UPDATE``, which goes
together with one's own guard. Every clock is ``clock_timestamp()``: ``now()`` is the start of the
transaction.

What holds for leases and for session locks alike is here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

from sqlalchemy import (
    ARRAY,
    CTE,
    BigInteger,
    ColumnElement,
    Interval,
    Table,
    Text,
    and_,
    bindparam,
    case,
    cast,
    delete,
    exists,
    extract,
    func,
    literal_column,
    select,
    true,
    union_all,
    update,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.sql.dml import Update
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
    constant,
)
from sqllocks.dialects.grants import LEASE, new_rows
from sqllocks.dialects.postgresql_batches import ELEMENTS, PARTS, Part, wanted
from sqllocks.dialects.postgresql_errors import fault_kind
from sqllocks.dialects.postgresql_waiting import locking_sessions, notified, signal, signals
from sqllocks.schema import POSTGRESQL_STORAGE

__all__ = ["PostgresqlRows"]

_MICROSECOND: ColumnElement[Any] = literal_column("interval '1 microsecond'", Interval)

_VERDICTS: Mapping[str, Verdict] = {verdict.value: verdict for verdict in Verdict}


_LOCK_TIMEOUT = "200ms"
"""For a claim: an insert waits for somebody else's uncommitted row of the same key."""
_PLACE: ColumnElement[Any] = literal_column("ctid")
"""Where a row is: it is found again there without another search."""


class PostgresqlRows(LeaseDialect):
    """Statements on rows, which answer for every element of a batch."""

    name: ClassVar[str] = "postgresql"
    parts: ClassVar[Sequence[Part]] = PARTS
    """The arrays of a batch, in what order, and what their columns are called."""
    unsignalled: ClassVar[str] = "koath"
    """The columns of those that free no key."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self.creates.append(Statement("storage", POSTGRESQL_STORAGE.against(table), rows=False))
        self.claim = self.both("claim", self._claim, self.unsignalled, lock_timeout=_LOCK_TIMEOUT)
        self._purging(remove=delete(table))
        self.remove = Statement("remove", self._remove())
        self.break_ = self.both("break", self._broken)
        self.lockers = locking_sessions(table)

    def _before(self, span: ColumnElement[int]) -> ColumnElement[Any]:
        return self.clock() - span * _MICROSECOND

    def clock(self) -> ColumnElement[Any]:
        return func.clock_timestamp()

    def batch(self, wants: Sequence[Want]) -> Parameters:
        return {name: self._array(name, wants) for name, _, _ in self.parts}

    def _array(self, name: str, wants: Sequence[Want]) -> list[Any]:
        return signals(self.table.name, wants) if name == "signals" else list(map(ELEMENTS[name], wants))

    def _element(self, name: str, want: Want) -> Any:
        return signal(self.table.name, want.key) if name == "signals" else ELEMENTS[name](want)

    def asked(self, statement: Statement, wants: Sequence[Want]) -> tuple[Statement, Parameters]:
        if len(wants) > 1 or statement.single is None:
            return statement, {name: self._array(name, wants) for name in statement.needs}
        [want] = wants
        return statement.single, {name: self._element(name, want) for name in statement.needs}

    def keys(self, keys: Sequence[str]) -> Parameters:
        return {"keys": list(keys)}

    def told(self, result: Result, wants: Sequence[Want]) -> dict[str, Answer]:
        answers: dict[str, Answer] = {}
        for row in result.rows:
            expires_at = row[3]
            if expires_at is not None and expires_at.tzinfo is not UTC:
                expires_at = self.instant(expires_at)
            answers[row[0]] = Answer(_VERDICTS[row[1]], row[2] or 0, expires_at)
        return answers

    def instant(self, value: Any) -> datetime:
        aware: datetime = value if value.tzinfo else value.replace(tzinfo=UTC)
        return aware.astimezone(UTC)

    @staticmethod
    def fault_kind(error: BaseException) -> FaultKind | None:
        return fault_kind(error)

    def _remove(self) -> ClauseElement:
        """Remove rows by key, but none that somebody has locked meanwhile: a plain DELETE would wait."""
        columns = self.table.c
        found = select(columns.lock_key).where(self._is_wanted(), self.old).order_by(columns.lock_key)
        old = found.with_for_update(skip_locked=True).cte("old")
        return delete(self.table).where(columns.lock_key == old.c.lock_key).returning(columns.lock_key)

    def _is_wanted(self) -> ColumnElement[bool]:
        keys: ColumnElement[Any] = cast(bindparam("keys", type_=ARRAY(Text)), ARRAY(Text))
        return self.table.c.lock_key == func.any(keys)

    # -- the parts of a batch statement

    def both(
        self, name: str, make: Callable[[CTE], ClauseElement], letters: str = "", **settings: str
    ) -> Statement:
        """Return a statement on the columns ``letters`` of a batch, in both forms.

        For arrays the server plans anew each time, because it expects more of them than one element; a
        single row has a plan that it keeps.
        """
        parts = [part for part in self.parts if part[1] in letters or not letters]
        single, batch = (
            make(wanted(parts, single=True, **settings)),
            make(wanted(parts, single=False, **settings)),
        )
        needs = tuple(name for name, _, _ in parts)
        return Statement(name, batch, single=Statement(name, single), needs=needs)

    def _claim(self, want: CTE) -> ClauseElement:
        # an insert waits for another transaction's uncommitted row of its key: not for long, by lock_timeout
        columns = self.table.c
        free = self.locked("free", want, self._takeable(want))
        taken = self.taken(free).returning(columns.lock_key, columns.fencing_token, columns.expires_at)
        present = self.table.alias("present")
        unknown = new_rows(
            want,
            self._granted(want),
            token=self._microseconds(),
            now=self.clock(),
            expires_at=self._expiry(want),
        ).where(~exists().where(present.c.lock_key == want.c.k))
        made = (
            insert(self.table)
            .from_select([c.name for c in self._columns], unknown.order_by(want.c.k))
            .on_conflict_do_nothing(index_elements=[columns.lock_key])
            .returning(columns.lock_key, columns.fencing_token, columns.expires_at)
            .cte("made")
        )
        won = union_all(select(taken.cte("taken")), select(made)).cte("won")
        now = self.table.alias("now")
        held = and_(now.c.attempt != NOTHING, now.c.expires_at > self.clock())
        verdict = case(
            (won.c.lock_key.is_not(None), constant("'done'")),
            # an earlier try whose reply was lost
            (now.c.attempt == want.c.a, constant("'done'")),
            (held, constant("'refused'")),
            else_=constant("'skipped'"),
        )
        return self._answers(want, won, now, verdict)

    def locked(self, name: str, want: CTE, which: ColumnElement[bool], *, key_share: bool = False) -> CTE:
        """Lock those rows of the batch that ``which`` is true of; each comes with its element.

        Each is looked up for itself by its key: a plain join may read the whole table, once the server's
        idea of its size or of the batch is wrong.
        """
        row = (
            select(_PLACE.label("place"))
            .select_from(self.table)
            .where(self.table.c.lock_key == want.c.k, which)
        )
        row = row.with_for_update(of=self.table, skip_locked=True, key_share=key_share)
        found = row.correlate(want).lateral("found")
        return select(found.c.place, *want.c).select_from(want.join(found, true())).cte(name)

    def taken(self, free: CTE) -> Update:
        """Grant the rows that were found free."""
        kind, server_lock = self._granted(free)
        token = func.greatest(self.table.c.fencing_token + literal_column("1"), self._microseconds())
        return self.at(free).values(
            owner_token=free.c.o,
            attempt=free.c.a,
            kind=kind,
            holder=free.c.h,
            server_lock=server_lock,
            fencing_token=token,
            acquired_at=self.clock(),
            expires_at=self._expiry(free),
        )

    def at(self, rows: CTE) -> Update:
        """Return a change of the rows that were locked."""
        # a row that changed between the statement's snapshot and its lock is at another place by then: it is
        # not changed, so not answered for, and asked about again
        return update(self.table).where(rows.c.place == _PLACE)

    def _granted(self, want: CTE) -> tuple[ColumnElement[str], ColumnElement[str]]:
        """Return the kind and the server-side lock that a grant writes."""
        return LEASE

    def _takeable(self, want: CTE) -> ColumnElement[bool]:
        """Return the condition under which a row may be taken over."""
        return self.free

    def prolonged(self, mine: CTE) -> Mapping[str, Any]:
        """Return what a renewal sets."""
        return {"expires_at": self._expiry(mine)}

    def freed(self, mine: CTE) -> Mapping[str, Any]:
        """Return what a release sets."""
        return self._released(self.table.c, mine.c, lambda start: start + mine.c.t * _MICROSECOND)

    def _broken(self, want: CTE) -> ClauseElement:
        def broken(mine: CTE) -> Mapping[str, Any]:
            return {"owner_token": mine.c.o, "attempt": NOTHING, "expires_at": self.clock()}

        return self.change(want, self._any, broken, key_share=False)

    def change(
        self,
        want: CTE,
        which: Callable[[FromClause, CTE], ColumnElement[bool]],
        values: Callable[[CTE], Mapping[str, Any]],
        *,
        key_share: bool = True,
        also: Callable[[CTE, CTE], ColumnElement[Any]] | None = None,
    ) -> ClauseElement:
        """Change the rows of the batch that ``which`` selects, and tell done, skipped or refused."""
        columns = self.table.c
        mine = self.locked("mine", want, which(self.table, want), key_share=key_share)
        done = (
            self.at(mine)
            .values(values(mine))
            .returning(columns.lock_key, columns.fencing_token, columns.expires_at)
            .cte("changed")
        )
        now = self.table.alias("now")
        verdict = case(
            (done.c.lock_key.is_not(None), constant("'done'")),
            (which(now, want), constant("'skipped'")),
            else_=constant("'refused'"),
        )
        told = [notified(done.c.lock_key.is_not(None), want.c.s)] if "s" in want.c else []
        told += [also(want, done)] if also is not None else []
        return self._answers(want, done, now, verdict, *told)

    def _answers(
        self,
        want: CTE,
        won: CTE,
        now: FromClause,
        verdict: ColumnElement[str],
        *others: ColumnElement[Any],
    ) -> ClauseElement:
        return select(
            want.c.k,
            verdict.label("verdict"),
            func.coalesce(won.c.fencing_token, now.c.fencing_token).label("fencing_token"),
            func.coalesce(won.c.expires_at, now.c.expires_at).label("expires_at"),
            *others,
        ).select_from(
            want.outerjoin(won, won.c.lock_key == want.c.k).outerjoin(now, now.c.lock_key == want.c.k)
        )

    def _own(self, table: FromClause, want: CTE) -> ColumnElement[bool]:
        return and_(table.c.owner_token == want.c.o, self._any(table, want))

    def _was_own(self, table: FromClause, want: CTE) -> ColumnElement[bool]:
        return and_(table.c.owner_token == want.c.o, table.c.attempt == want.c.a, table.c.attempt != NOTHING)

    def _any(self, table: FromClause, want: CTE) -> ColumnElement[bool]:
        same_attempt = (want.c.a == NOTHING) | (table.c.attempt == want.c.a)
        return and_(same_attempt, table.c.attempt != NOTHING, table.c.expires_at > self.clock())

    def _expiry(self, want: CTE) -> ColumnElement[Any]:
        return self.clock() + want.c.t * _MICROSECOND

    def _microseconds(self) -> ColumnElement[int]:
        return cast(extract("epoch", self.clock()) * literal_column("1000000"), BigInteger)
