"""What MariaDB does better than MySQL: it can be told to wait for no lock at all.

So a single row is changed by a plain ``UPDATE``, for half the price of the statement that skips locked
rows; only where the row is locked, that one is asked after all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from sqlalchemy import ColumnElement, Table, and_, bindparam, update

from sqllocks.dialects.base import NOTHING, Statement
from sqllocks.dialects.mysql import MysqlLeases

__all__ = ["MariadbLeases"]


class MariadbLeases(MysqlLeases):
    """Lease statements for MariaDB 10.6 and later."""

    single_skips = False

    def __init__(self, table: Table) -> None:
        super().__init__(table, mariadb=True)
        want: Any = SimpleNamespace(
            c=SimpleNamespace(**{name: bindparam(name, type_=kind) for name, (_, kind) in self.parts.items()})
        )
        columns = table.c
        mine = and_(
            columns.owner_token == want.c.o,
            (want.c.a == NOTHING) | (columns.attempt == want.c.a),
            self.held,
        )
        granted = {**self._grant(want), "fencing_token": self.telling(self._since_epoch(columns.acquired_at))}
        self.claim = self._plainly(self.claim, self.free, granted, counted=False)
        assert self.release.at_once is not None
        at_once = self._plainly(self.release.at_once, mine, self._freed_now(want))
        self.release = replace(self._plainly(self.release, mine, self._freed(want)), at_once=at_once)

    def _plainly(
        self,
        statement: Statement,
        which: ColumnElement[bool],
        values: Mapping[str, Any],
        *,
        counted: bool = True,
    ) -> Statement:
        """Return the statement with a single form that changes the row and tells no more than that."""
        key = self.table.c.lock_key == bindparam("k", type_=self.parts["k"][1])
        change = update(self.table).where(key, which).ordered_values(*values.items())
        single = Statement(f"{statement.name}_row", change, rows=False, counted=counted)
        return replace(statement, single=single)

    def session_setup(self) -> Sequence[str]:
        # a later value of an UPDATE is computed from the columns set before, unless this mode is on
        mode = "SET sql_mode = REPLACE(@@sql_mode, 'SIMULTANEOUS_ASSIGNMENT', '')"
        return (*super().session_setup(), mode)
