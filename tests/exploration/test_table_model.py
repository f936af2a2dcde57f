"""The modelled table against a real one: the statements of SQLite, with a clock that the test sets."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from sqllocks.dialects.base import Result, Want
from sqllocks.runtime.statements import Compiler
from tests.exploration.asks import Query
from tests.exploration.families import Family, family
from tests.exploration.table import Row, Rows

MILLISECOND = 1000
START = 1_900_000_000_000 * MILLISECOND
STATEMENTS = ("claim", "claim", "renew", "release", "break", "read")

wants = st.builds(
    Want,
    key=st.sampled_from("ab"),
    owner=st.sampled_from("xy"),
    attempt=st.sampled_from(["1", "2"]),
    ttl=st.sampled_from([1000, 5000]).map(lambda span: span * MILLISECOND),
    holder=st.just("h"),
)
batches = st.lists(wants, min_size=1, max_size=2, unique_by=lambda want: want.key)
steps = st.tuples(st.sampled_from(STATEMENTS), batches, st.sampled_from([0, 1, 1000, 4000]), st.booleans())


class Sqlite:
    """SQLite with the library's own statements, and ``strftime`` in the test's hands."""

    def __init__(self, model: Family, connection: sqlite3.Connection) -> None:
        self.now = START
        self._sql = model.sql
        self._connection = connection
        self._compiled = Compiler(create_engine("sqlite://", poolclass=NullPool).dialect)
        connection.create_function("strftime", 2, self._strftime)
        self._run("create", ())

    def _strftime(self, form: str, _: str) -> str:
        seconds, rest = divmod(self.now // MILLISECOND, 1000)
        return str(seconds) if form == "%s" else f"{seconds % 60:02}.{rest:03}"

    def _run(self, name: str, batch: tuple[Want, ...]) -> list[tuple[object, ...]]:
        sql = self._sql
        statement = {"break": sql.break_, "create": sql.creates[0]}.get(name) or getattr(sql, name)
        parameters = sql.keys([want.key for want in batch]) if name == "read" else sql.batch(batch)
        return list(self._connection.execute(*self._compiled(statement, parameters if batch else {})))

    def execute(self, query: Query, batch: tuple[Want, ...]) -> list[tuple[object, ...]]:
        return sorted(self._run(query.statement, batch))

    def rows(self) -> dict[str, Row]:
        columns = "lock_key, owner_token, attempt, holder, fencing_token, acquired_at, expires_at"
        found = self._connection.execute(f"SELECT {columns} FROM core_locks")
        return {row[0]: Row(*row) for row in found}


@contextmanager
def sqlite(model: Family) -> Iterator[Sqlite]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        yield Sqlite(model, connection)


@settings(max_examples=60, deadline=None, database=None)
@given(st.lists(steps, max_size=12))
def test_the_model_does_what_sqlite_does(
    schedule: list[tuple[str, list[Want], int, bool]],
) -> None:
    model = family("sqlite")
    rows: Rows = {}
    with sqlite(model) as real:
        for name, batch, span, any_attempt in schedule:
            real.now += span * MILLISECOND
            asked = tuple(_loose(want) if any_attempt and name != "claim" else want for want in batch)
            keys = tuple(want.key for want in asked)
            query = Query(name, keys=keys) if name == "read" else Query(name, asked)
            rows, answer = model.execute(query, rows, {}, real.now)
            assert real.execute(query, asked) == sorted(_plain(answer))
            assert real.rows() == rows


def _loose(want: Want) -> Want:
    return Want(want.key, want.owner, "", 0 if want.ttl < 5000 * MILLISECOND else want.ttl, want.holder)


def _plain(answer: Result) -> list[tuple[object, ...]]:
    return [tuple(row) for row in answer.rows]
