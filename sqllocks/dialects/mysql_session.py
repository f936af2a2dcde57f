"""Named locks of MySQL and MariaDB together with their rows.

Names are one space for the whole server, and each answer has three values: 1, 0, and NULL for an error,
which is never taken for "busy".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from sqlalchemy import ColumnElement, String, Table, and_, func, literal_column, select, text
from sqlalchemy.sql.selectable import FromClause

from sqllocks.dialects.base import Parameters, Result, Row, Statement, Want, constant
from sqllocks.dialects.mysql import MysqlLeases
from sqllocks.dialects.sessions import Server, SessionStatements
from sqllocks.naming import LockNames

__all__ = ["MysqlSessions"]


class MysqlSessions(MysqlLeases, SessionStatements):
    """Statements on named locks and the rows of their keys."""

    parts: ClassVar[Mapping[str, tuple[str, Any]]] = {
        **MysqlLeases.parts,
        "n": ("VARCHAR(192) CHARACTER SET utf8mb4", String),
        "l": ("VARCHAR(255) CHARACTER SET utf8mb4", String),
    }
    changing = "koathn"
    unlocks_with_release = False

    def __init__(self, locks: Table, *, mariadb: bool = False) -> None:
        super().__init__(locks, mariadb=mariadb)
        want = self._wanted()
        self.take = self._each("take", want, func.get_lock(want.c.n, literal_column("0")))
        self.unlock = self._each("unlock", want, func.release_lock(want.c.n))
        self.beat = Statement("beat", select(want.c.n).where(self._proven(want)))
        self.identity = Statement("identity", text(_MARIADB_IDENTITY if mariadb else _MYSQL_IDENTITY))

    def test(self, want: Want) -> Want:
        return want._replace(name=want.key)

    def names(self, key: str, naming: LockNames, server: Server) -> tuple[str, str]:
        name = naming.lock_name(key, database=server.database)
        return name, f"name:{name}@{server.incarnation}"

    def _element(self, want: Want) -> dict[str, Any]:
        return {**super()._element(want), "n": want.name, "l": want.server_lock}

    def named(self, wants: Sequence[Want]) -> Parameters:
        return self.batch(wants)

    def server(self, row: Row) -> Server:
        session, database, identity, started, read_only, wsrep, primaries, client = row
        refusal = remedy = ""
        if str(wsrep).upper() in {"1", "ON"}:
            refusal = "each node of a Galera cluster grants the same name by itself"
            remedy = "use leases, SqlLockProvider or strategy='lease'"
        elif str(primaries).upper() in {"0", "OFF"}:
            refusal = "each primary of a replication group with several grants the same name by itself"
            remedy = "use leases, SqlLockProvider or strategy='lease'"
        elif str(read_only).upper() not in {"0", "OFF", "NONE"}:
            refusal = "it is read-only, so it may be a replica whose named locks are its own"
            remedy = "pass a URL of the primary"
        host, _, port = str(client or "").rpartition(":")
        address = (host, int(port)) if host and port.isdecimal() else None
        return Server(
            int(session),
            f"{identity}:{int(float(started))}",
            refusal,
            remedy,
            database=str(database or ""),
            client=address,
        )

    def settings(self, lease: float, heartbeat: float) -> Sequence[tuple[str, str]]:
        return [("wait_timeout", f"SET SESSION wait_timeout = {max(int(lease), 1)}")]

    @staticmethod
    def enforced(lease: float) -> float:
        return float(int(lease)) if lease >= 1 else lease

    def unlocked(self, result: Result) -> Mapping[str, bool]:
        return {}

    def _each(self, name: str, want: FromClause, call: ColumnElement[Any]) -> Statement:
        return Statement(name, select(want.c.n, call.label("answer")))

    def _granted(self, want: FromClause) -> tuple[ColumnElement[str], ColumnElement[str]]:
        return constant("'session'"), want.c.l

    def _takeable(self, want: FromClause) -> ColumnElement[bool]:
        # byte for byte as the column is; a JSON_TABLE column has the connection's collation
        return super()._takeable(want) | (self._row.c.server_lock == want.c.l)

    def _releasable(self, want: FromClause) -> ColumnElement[bool]:
        return super()._own(want)

    def _own(self, want: FromClause) -> ColumnElement[bool]:
        return and_(super()._own(want), self._proven(want))

    def _was_own(self, want: FromClause) -> ColumnElement[bool]:
        return and_(super()._was_own(want), self._proven(want))

    def _proven(self, want: FromClause) -> ColumnElement[bool]:
        return func.is_used_lock(want.c.n) == func.connection_id()


def _identity(uptime: str, server: str, client: str, primaries: str) -> str:
    # the seconds of both clocks are those of the statement's start, so the difference does not waver
    # S608: the parts are constants of this module
    started = f"(SELECT UNIX_TIMESTAMP() - variable_value FROM {uptime} WHERE variable_name = 'Uptime')"  # noqa: S608
    wsrep = f"(SELECT variable_value FROM {uptime} WHERE variable_name = 'wsrep_ready')"  # noqa: S608
    own = f"(SELECT host FROM {client} WHERE id = CONNECTION_ID())"  # noqa: S608
    return (
        f"SELECT CONNECTION_ID(), DATABASE(), {server}, {started}, @@GLOBAL.read_only, "
        f"{wsrep}, {primaries}, {own}"
    )


_MYSQL_IDENTITY = _identity(
    "performance_schema.global_status",
    "@@server_uuid",
    "performance_schema.processlist",
    # only there where the plugin is loaded, and only in a group does it mean anything
    "(SELECT s.variable_value FROM performance_schema.global_variables s "
    "JOIN performance_schema.global_variables g ON g.variable_name = 'group_replication_group_name' "
    "AND g.variable_value <> '' WHERE s.variable_name = 'group_replication_single_primary_mode')",
)
_MARIADB_IDENTITY = _identity(
    "information_schema.global_status",
    "CONCAT(@@hostname, ':', @@port, ':', @@server_id)",
    "information_schema.processlist",
    "NULL",
)
