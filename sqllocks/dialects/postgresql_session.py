"""Advisory locks of PostgreSQL together with their rows.

Every function is called by its schema, so that one of the same name on the search path is not. Waiting
is never done by the server: a blocking advisory lock makes ``CREATE INDEX CONCURRENTLY`` deadlock, and one
that ended by ``lock_timeout`` may hold the lock all the same.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from sqlalchemy import (
    ARRAY,
    CTE,
    BigInteger,
    ColumnClause,
    ColumnElement,
    Table,
    Text,
    and_,
    bindparam,
    case,
    cast,
    column,
    extract,
    func,
    literal_column,
    select,
    table,
)
from sqlalchemy.sql.elements import ClauseElement
from sqlalchemy.sql.selectable import FromClause

from sqllocks.dialects.base import Parameters, Result, Row, Statement, Want, constant
from sqllocks.dialects.postgresql_rows import PostgresqlRows
from sqllocks.dialects.sessions import Server, SessionStatements, as_held
from sqllocks.naming import LockNames

__all__ = ["PostgresqlSessions"]

_SHARE = 4
"""One locker's part of the server's lock table: a full one keeps everybody from connecting."""


class PostgresqlSessions(PostgresqlRows, SessionStatements):
    """Statements on advisory locks and the rows of their keys."""

    parts: ClassVar[Sequence[tuple[str, str, Any]]] = (
        *PostgresqlRows.parts[:-1],
        ("names", "n", BigInteger),
        ("server_locks", "l", Text),
        PostgresqlRows.parts[-1],
    )
    unsignalled = "koathnl"
    unlocks_with_release = True

    def __init__(self, locks: Table) -> None:
        self._held = _held_here()
        super().__init__(locks)
        self.renew = self.both("renew", self._renew, self.unsignalled)
        self.revive = self.both("revive", self._revive, self.unsignalled)
        # a release that a crash loses only lasts until its ttl, so it need not wait for the log
        self.release = self.both("release", self._release, synchronous_commit="off")
        self.take = Statement("take", _for_each("pg_try_advisory_lock"))
        self.unlock = Statement("unlock", _for_each("pg_advisory_unlock"))
        name = _given()
        self.beat = Statement("beat", select(name.c.n).where(name.c.n.in_(select(self._held.c.n))))
        self.identity = Statement("identity", _identity())

    def test(self, want: Want) -> Want:
        return want._replace(name=secrets.randbits(64) - (1 << 63))

    def names(self, key: str, naming: LockNames, server: Server) -> tuple[int, str]:
        number = naming.advisory_id(key)
        return number, f"advisory:{number}@{server.incarnation}"

    def named(self, wants: Sequence[Want]) -> Parameters:
        return {"names": [want.name for want in wants]}

    def server(self, row: Row) -> Server:
        session, replica, read_only, started, room, _version, host, port = row
        refusal = remedy = ""
        if replica:
            refusal = "it is a hot standby, whose advisory locks are its own and not the primary's"
            remedy = "pass a URL of the primary"
        elif read_only == "on":
            refusal = "its transactions are read-only"
            remedy = "use an account or a server that may write"
        client = (str(host), int(port)) if host is not None and port and int(port) > 0 else None
        return Server(
            int(session), str(started), refusal, remedy, client=client, most_locks=int(room) // _SHARE
        )

    def settings(self, lease: float, heartbeat: float) -> Sequence[tuple[str, str]]:
        milliseconds, seconds = round(lease * 1000), max(round(heartbeat), 1)
        values = {
            "idle_session_timeout": milliseconds,
            # a statement that hangs at the server proves nothing, and must not outlive the lease
            "statement_timeout": milliseconds,
            # a statement whose client has gone ends early, and its locks with it
            "client_connection_check_interval": max(round(heartbeat * 1000), 1),
            "tcp_user_timeout": milliseconds,
            "tcp_keepalives_idle": seconds,
            "tcp_keepalives_interval": max(seconds // 2, 1),
            "tcp_keepalives_count": 3,
        }
        return [(name, f"SET {name} = {value}") for name, value in values.items()]

    @staticmethod
    def enforced(lease: float) -> float:
        return lease

    def unlocked(self, result: Result) -> Mapping[str, bool]:
        return {row[0]: as_held(row[-1]) for row in result.rows if row[1] == "done"}

    def _granted(self, want: CTE) -> tuple[ColumnElement[str], ColumnElement[str]]:
        return constant("'session'"), want.c.l

    def _takeable(self, want: CTE) -> ColumnElement[bool]:
        return self.free | (self.table.c.server_lock == want.c.l)

    def _own(self, table: FromClause, want: CTE) -> ColumnElement[bool]:
        return and_(super()._own(table, want), self._proven(want))

    def _was_own(self, table: FromClause, want: CTE) -> ColumnElement[bool]:
        return and_(super()._was_own(table, want), self._proven(want))

    def _proven(self, want: CTE) -> ColumnElement[bool]:
        return want.c.n.in_(select(self._held.c.n))

    def _renew(self, want: CTE) -> ClauseElement:
        return self.change(want, self._own, self.prolonged)

    def _revive(self, want: CTE) -> ClauseElement:
        return self.change(want, self._was_own, self.prolonged)

    def _release(self, want: CTE) -> ClauseElement:
        def unlocked(want: CTE, done: CTE) -> ColumnElement[Any]:
            unlock = func.pg_catalog.pg_advisory_unlock(want.c.n)
            return case((done.c.lock_key.is_not(None), unlock)).label("unlocked")

        return self.change(want, super()._own, self.freed, also=unlocked)


def _given() -> Any:
    names: ColumnElement[Any] = cast(bindparam("names", type_=ARRAY(BigInteger)), ARRAY(BigInteger))
    values = func.unnest(names).table_valued(column("n", BigInteger), name="given")
    return values.render_derived()


def _for_each(function: str) -> ClauseElement:
    name = _given()
    return select(name.c.n, getattr(func.pg_catalog, function)(name.c.n).label("answer"))


def _held_here() -> CTE:
    """The ids of the advisory locks that this very session holds, whatever it believes."""
    locks = _view(
        "pg_locks", "locktype", "database", "classid", "objid", "objsubid", "pid", "mode", "granted"
    )
    here = _view("pg_database", "oid", "datname")
    database = select(here.c.oid).where(here.c.datname == func.pg_catalog.current_database())
    high: ColumnElement[Any] = cast(locks.c.classid, BigInteger).op("<<")(literal_column("32"))
    return (
        select(high.op("|")(cast(locks.c.objid, BigInteger)).label("n"))
        .where(
            locks.c.locktype == constant("'advisory'"),
            locks.c.objsubid == literal_column("1"),
            locks.c.pid == func.pg_catalog.pg_backend_pid(),
            locks.c.mode == constant("'ExclusiveLock'"),
            locks.c.granted,
            locks.c.database == database.scalar_subquery(),
        )
        .cte("held")
        .prefix_with("MATERIALIZED")
    )


def _identity() -> ClauseElement:
    catalog = func.pg_catalog

    def setting(name: str) -> Any:
        return catalog.current_setting(constant(f"'{name}'"))

    def number(name: str) -> ColumnElement[int]:
        return cast(setting(name), BigInteger)

    started = extract("epoch", catalog.pg_postmaster_start_time())
    room = number("max_locks_per_transaction") * (
        number("max_connections") + number("max_prepared_transactions")
    )
    return select(
        catalog.pg_backend_pid(),
        catalog.pg_is_in_recovery(),
        setting("transaction_read_only"),
        cast(started * literal_column("1000000"), BigInteger),
        room,
        number("server_version_num"),
        catalog.host(catalog.inet_client_addr()),
        catalog.inet_client_port(),
    )


def _view(name: str, *columns: str) -> FromClause:
    named: list[ColumnClause[Any]] = [column(each) for each in columns]
    return table(name, *named, schema="pg_catalog")
