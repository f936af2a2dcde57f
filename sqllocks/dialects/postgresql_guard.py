"""The guard on PostgreSQL: ``FOR KEY SHARE``, which a takeover's ``FOR UPDATE`` cannot pass.

Own renewals and releases lock ``FOR NO KEY UPDATE`` and go together with it. The lock is taken in a
sub-select, so that the clock is read after a wait for it, and an outer join answers for a missing row
too, because what that means depends on the isolation level.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Integer,
    Interval,
    Select,
    Text,
    bindparam,
    cast,
    extract,
    func,
    literal_column,
    select,
    true,
)

from sqllocks.dialects.base import Parameters, Row, Statement, constant
from sqllocks.dialects.guards import Claimed, GuardDialect, GuardedRow, View, key_parameter
from sqllocks.dialects.postgresql import PostgresqlLeases
from sqllocks.dialects.postgresql_errors import sql_state

__all__ = ["PostgresqlGuard"]

_IDLE_LIMIT = constant("'idle_in_transaction_session_timeout'")
_SNAPSHOT_LEVELS = {"repeatable read", "serializable"}
_SERIALIZATION_FAILURE = "40001"
_TRANSACTION_FAILED_BEFORE = "25P02"


class PostgresqlGuard(GuardDialect):
    """Guard statements for PostgreSQL 14 and later."""

    stops_own: ClassVar[bool] = False

    def __init__(self, leases: PostgresqlLeases) -> None:
        super().__init__(leases)
        self._leases = leases
        self.guard = Statement("guard", self._guard())
        self.bounded = Statement("bounded guard", self._guard(_idle_limit()))

    def parameters(self, key: str, milliseconds: int | None) -> Parameters:
        bound = {} if milliseconds is None else {"milliseconds": milliseconds}
        return {**super().parameters(key, milliseconds), **bound}

    def view(self, rows: Sequence[Row]) -> View:
        level, owner, attempt, token, live, *_ = rows[0]
        row = None if owner is None else GuardedRow(owner, attempt, token, live, token)
        return View(row, frozen=level in _SNAPSHOT_LEVELS)

    def autocommits(self, connection: Any, rows: Sequence[Row]) -> bool:
        # psycopg, psycopg2, pg8000, and SQLAlchemy's adapters of the asyncio drivers
        return getattr(connection.dbapi_connection, "autocommit", False) is True

    def retryable(self, error: BaseException) -> bool | None:
        state = sql_state(error)
        if state == _SERIALIZATION_FAILURE:
            return False  # the row changed since the snapshot, which the next run would show
        if state == _TRANSACTION_FAILED_BEFORE:
            return True
        return super().retryable(error)

    def _guard(self, *settings: ColumnElement[Any]) -> Select[*tuple[Any, ...]]:
        columns = self._leases.table.c
        locked = (
            select(columns.owner_token, columns.attempt, columns.fencing_token, columns.expires_at)
            .where(columns.lock_key == key_parameter())
            .with_for_update(read=True, key_share=True)
            .subquery("l")
        )
        one: ColumnElement[int] = literal_column("1")
        always = select(one.label("one")).subquery("always")
        return select(
            func.current_setting(constant("'transaction_isolation'"), type_=Text).label("level"),
            locked.c.owner_token,
            locked.c.attempt,
            locked.c.fencing_token,
            (locked.c.expires_at > self._leases.clock()).label("live"),
            *settings,
        ).select_from(always.outerjoin(locked, true()))

    def fence(self, claim: Claimed) -> Select[*tuple[Any, ...]]:
        live = self._leases.table.c.expires_at > self._leases.clock()
        return claim.row_of(self._leases.table, live).with_for_update(read=True, key_share=True)


def _idle_limit() -> ColumnElement[Any]:
    """Set the smaller of the present limit (0 is none) and ``milliseconds``, until the transaction ends."""
    present = extract("epoch", cast(func.current_setting(_IDLE_LIMIT, type_=Text), Interval))
    milliseconds = cast(present * literal_column("1000"), BigInteger)
    limit = func.least(
        func.nullif(milliseconds, literal_column("0")), bindparam("milliseconds", type_=Integer)
    )  # NULL does not count in LEAST
    return func.set_config(_IDLE_LIMIT, cast(limit, Text), true()).label("idle_limit")
