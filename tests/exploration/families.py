"""Statements on the modelled table, with the answers that each family of databases gives.

Parameters and answers are those of the real dialects: what they encode is decoded here, and what
they tell apart is what the database would have sent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import MetaData

from sqllocks.backends.base import Capabilities
from sqllocks.dialects.base import LeaseDialect, Parameters, Result, Verdict, Want
from sqllocks.dialects.mariadb import MariadbLeases
from sqllocks.dialects.mysql import MysqlLeases
from sqllocks.dialects.postgresql import PostgresqlLeases
from sqllocks.dialects.sqlite import SqliteLeases
from sqllocks.schema import core_locks, from_microseconds
from tests.exploration.asks import Query
from tests.exploration.table import Blocked, Pins, Row, Rows, Rules, held

__all__ = ["FAMILIES", "Family", "family"]

LOCKED, GUARDED, WRITER = "row lock", "guard", "writer"


class Family:
    """One family of databases: its dialect, and what its statements do and answer."""

    pins: tuple[str, ...] = (LOCKED,)
    """How an open transaction can stand in the way."""
    capabilities = Capabilities()
    _inserts_in_claim = True
    _skips_stale = True
    _remove_waits = False
    stops_own = True
    """Whether a guard's lock stops the renewals and releases of the lease's own holder too."""
    guards = LOCKED
    """How a guard pins a row."""

    def __init__(self, name: str, sql: LeaseDialect, rules: Rules) -> None:
        self.name = name
        self.sql = sql
        self.rules = rules

    def decoded(self, parameters: Parameters) -> tuple[tuple[Want, ...], tuple[str, ...]]:
        """Return the wants, or the keys, that the dialect packed into parameters."""
        if not parameters:
            return (), ()
        if "key" in parameters:
            return (), (parameters["key"],)
        if "k" in parameters:  # a single element goes without JSON
            return (Want(*(parameters[name] for name in "koath")),), ()
        if "batch" not in parameters:
            return (), ()
        elements = json.loads(parameters["batch"])
        wants = tuple(self._want(element) for element in elements if len(element) > 1)
        return wants, () if wants else tuple(self._key(element) for element in elements)

    def execute(self, query: Query, rows: Rows, pins: Pins, now: int) -> tuple[Rows, Result]:
        """Carry out one statement; raises ``Blocked``."""
        if query.statement == "read":
            return rows, self._read(query.keys, rows, now)
        if query.statement == "commits":
            return rows, Result(((0,),), 1)  # nobody gets through meanwhile
        if query.statement == "lockers":
            return rows, Result((), 0)  # a privilege is missing, or it is over already
        if query.statement == "stale":
            stale = [key for key in sorted(rows) if self._removes(rows[key], query.idle, now)]
            stale = [key for key in stale if not self._skips_stale or key not in pins]
            return rows, Result(tuple((key,) for key in stale), len(stale))
        if query.statement == "remove":
            return self._remove(query, rows, pins, now)
        changed = dict(rows)
        statement = query.statement.removesuffix("_row")
        done = [want for want in query.wants if self._apply(statement, want, changed, pins, now)]
        return changed, self._answer(query, done, changed, now)

    def _remove(self, query: Query, rows: Rows, pins: Pins, now: int) -> tuple[Rows, Result]:
        old = [key for key in query.keys if key in rows and self._removes(rows[key], query.idle, now)]
        if self._remove_waits and any(key in pins for key in old):
            raise Blocked
        old = [key for key in old if key not in pins]
        left = {key: row for key, row in rows.items() if key not in old}
        named = tuple((key,) for key in old) if self.sql.remove.rows else ()
        return left, Result(named, len(old))

    def _removes(self, row: Row, idle: int, now: int) -> bool:
        return self.rules.old(row, idle, now)

    def _apply(self, statement: str, want: Want, rows: dict[str, Row], pins: Pins, now: int) -> bool:
        row, pin = rows.get(want.key), pins.get(want.key)
        if statement in ("claim", "claim_free", "insert"):
            if row is None and statement == "claim_free":
                return False
            if row is None:
                return self._insert(statement, want, rows, pin, now)
            if statement == "insert" or not self.rules.takes(row, now, pinned=pin is not None):
                return False
            rows[want.key] = self.rules.granted(row, want, now)
            return True
        if row is None or pin == LOCKED or (statement == "break" and pin is not None):
            return False
        if not self._applies(statement, want, row, now):
            return False
        rows[want.key] = self._change(statement)(row, want, now)
        return True

    def _applies(self, statement: str, want: Want, row: Row, now: int) -> bool:
        if statement == "break":
            return _breaks(row, want, now)
        return (self.rules.revives if statement == "revive" else self.rules.owns)(row, want, now)

    def _insert(self, statement: str, want: Want, rows: dict[str, Row], pin: str | None, now: int) -> bool:
        if statement == "claim" and not self._inserts_in_claim:
            return False
        if pin is not None:
            raise Blocked  # somebody else's uncommitted row of the same key
        rows[want.key] = self.rules.granted(None, want, now)
        return True

    def _change(self, statement: str) -> Callable[[Row, Want, int], Row]:
        rules = self.rules
        changes = {"release": rules.released, "break": rules.broken}
        return changes.get(statement, rules.renewed)

    def _answer(self, query: Query, done: Sequence[Want], rows: Rows, now: int) -> Result:
        """Name the rows that were changed."""
        changed = [rows[want.key] for want in done]
        return Result(tuple((row.key, row.token, self._instant(row.expires)) for row in changed), len(done))

    def _read(self, keys: Sequence[str], rows: Rows, now: int) -> Result:
        found = [rows[key] for key in keys if key in rows]
        return Result(tuple(self._columns(row, now) for row in found), len(found))

    def _columns(self, row: Row, now: int) -> tuple[Any, ...]:
        acquired, expires, seen_at = map(self._instant, (row.acquired, row.expires, now))
        names = (row.key, row.owner, row.attempt, "lease", row.holder, "")
        return (*names, row.token, acquired, expires, held(row, now), seen_at)

    def _instant(self, microseconds: int) -> Any:
        return microseconds

    def _want(self, element: Any) -> Want:
        return Want(*element)

    def _key(self, element: Any) -> str:
        key: str = element[0]
        return key


class Sqlite(Family):
    """One writer: an open transaction that writes keeps every statement out, whatever its key."""

    pins = (WRITER,)
    guards = WRITER
    _skips_stale = False
    capabilities = Capabilities(single_writer=True)

    def execute(self, query: Query, rows: Rows, pins: Pins, now: int) -> tuple[Rows, Result]:
        if pins and query.writes:
            raise Blocked
        return super().execute(query, rows, pins, now)


class Postgresql(Family):
    """Claims answer for every key, other statements for what they did; a guard lets its holder's own pass."""

    pins = (LOCKED, GUARDED)
    guards = GUARDED
    stops_own = False

    def decoded(self, parameters: Parameters) -> tuple[tuple[Want, ...], tuple[str, ...]]:
        if "key" in parameters:
            return (), (parameters["key"],)
        if "owners" not in parameters:
            return (), tuple(parameters.get("keys", ()))
        names = ("keys", "owners", "attempts", "ttls", "holders")  # a change has no holders
        columns = [parameters[name] for name in names if name in parameters]
        if isinstance(columns[0], str):  # a batch of one goes without arrays
            return (Want(*columns),), ()
        return tuple(map(Want, *columns)), ()

    def _answer(self, query: Query, done: Sequence[Want], rows: Rows, now: int) -> Result:
        if query.statement not in ("claim", "break"):  # what was not done is asked afterwards
            told = [self._told(query.statement, want, rows, now, done=True) for want in done]
            return Result(tuple(told), len(told))
        answers = [self._told(query.statement, want, rows, now, done=want in done) for want in query.wants]
        return Result(tuple(answers), len(answers))

    def _told(self, statement: str, want: Want, rows: Rows, now: int, *, done: bool) -> tuple[Any, ...]:
        row = rows.get(want.key)
        if row is None:
            verdict = Verdict.SKIPPED if statement == "claim" else Verdict.REFUSED
            return want.key, verdict.value, None, None
        if done:
            verdict = Verdict.DONE
        elif statement == "claim":
            verdict = Verdict.REFUSED if held(row, now) else Verdict.SKIPPED
            verdict = Verdict.DONE if row.attempt == want.attempt else verdict
        else:
            applies = self._applies(statement, want, row, now)
            verdict = Verdict.SKIPPED if applies else Verdict.REFUSED
        return want.key, verdict.value, row.token, self._instant(row.expires)

    def _instant(self, microseconds: int) -> datetime:
        return from_microseconds(microseconds)


class Counted(Family):
    """Missing rows are inserted by a statement of their own, which answers nothing."""

    _inserts_in_claim = False
    _remove_waits = True

    def _number(self, query: Query, done: Sequence[Want], rows: Rows) -> int:
        """Return what comes back with the count of a claim: the token where it is the moment of the grant."""
        if query.kind != "claim" or not len(query.wants) == len(done) == 1:
            return 0
        row = rows[done[0].key]
        return row.token if row.token == row.expires - done[0].ttl else 1

    def _instant(self, microseconds: int) -> datetime:
        return from_microseconds(microseconds).replace(tzinfo=None)


class Mariadb(Counted):
    """A batch names the rows that it changed; a plain change of one row fails where that is locked."""

    def execute(self, query: Query, rows: Rows, pins: Pins, now: int) -> tuple[Rows, Result]:
        if query.statement != query.kind and any(want.key in pins for want in query.wants):
            raise Blocked
        return super().execute(query, rows, pins, now)

    def _answer(self, query: Query, done: Sequence[Want], rows: Rows, now: int) -> Result:
        if query.statement == "insert":
            return Result((), len(done))
        if query.statement != query.kind:
            return Result((), len(done), self._number(query, done, rows))
        changed = [rows[want.key] for want in done]
        if query.kind == "release":
            return Result(tuple((row.key,) for row in changed), len(done))
        return Result(tuple((row.key, row.token, row.expires) for row in changed), len(done))


class Mysql(Counted):
    """Nothing is named, changes are counted, two for each row."""

    def execute(self, query: Query, rows: Rows, pins: Pins, now: int) -> tuple[Rows, Result]:
        found = [(want, rows[want.key]) for want in query.wants if want.key in rows]
        if query.statement == "won":
            won = [row for want, row in found if row.attempt == want.attempt]
            return rows, Result(tuple((row.key, row.token, row.expires) for row in won), len(won))
        if query.statement == "own":
            own = [row.key for want, row in found if self.rules.owns(row, want, now)]
            return rows, Result(tuple((key,) for key in own), len(own))
        return super().execute(query, rows, pins, now)

    def _answer(self, query: Query, done: Sequence[Want], rows: Rows, now: int) -> Result:
        if query.statement == "insert":
            return Result((), len(done))
        return Result((), 2 * len(done), self._number(query, done, rows))


FAMILIES = ("postgresql", "sqlite", "mysql", "mariadb")


def family(name: str, rules: Rules | None = None) -> Family:
    """Return a family of databases by its name, with changed rules for a mutant."""
    table = core_locks(MetaData())
    makers: dict[str, tuple[type[Family], Callable[[], LeaseDialect]]] = {
        "postgresql": (Postgresql, lambda: PostgresqlLeases(table)),
        "sqlite": (Sqlite, lambda: SqliteLeases(table)),
        "mysql": (Mysql, lambda: MysqlLeases(table)),
        "mariadb": (Mariadb, lambda: MariadbLeases(table)),
    }
    kind, dialect = makers[name]
    return kind(name, dialect(), rules or Rules())


def _breaks(row: Row, want: Want, now: int) -> bool:
    return held(row, now) and want.attempt in ("", row.attempt)
