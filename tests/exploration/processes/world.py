"""One moment of processes: the table, their lives, what is under way, what may still go wrong."""

from __future__ import annotations

from typing import NamedTuple

from tests.exploration.asks import Query
from tests.exploration.processes.lives import Life
from tests.exploration.processes.programs import Budget
from tests.exploration.table import Row

__all__ = ["DATABASE_START", "Pin", "State"]

DATABASE_START = 1_000_000_000
"""The database's clock when the processes' says 0, in microseconds."""
NOBODY = -1


class Pin(NamedTuple):
    """A row (on SQLite the file) that a transaction has locked, and whose it is."""

    key: str
    kind: str
    place: int = NOBODY


class State(NamedTuple):
    """Everything that decides what can happen next, and whether it may."""

    lives: tuple[Life | None, ...]
    """``None`` for a process that died."""
    budget: Budget
    now: int = 0
    """Microseconds by the processes' clocks."""
    rows: tuple[Row, ...] = ()
    late: tuple[Query, ...] = ()
    pins: tuple[Pin, ...] = ()
    tops: tuple[tuple[str, int], ...] = ()
    """The greatest token of each key so far."""
    freed: frozenset[tuple[str, int]] = frozenset()
    """Keys and tokens of grants that a release has freed."""
    haunted: frozenset[str] = frozenset()
    """Attempts whose claim was carried out after its caller had given it up."""

    @property
    def database(self) -> int:
        """Return the database's clock."""
        return DATABASE_START + self.now

    def row(self, key: str) -> Row | None:
        return next((row for row in self.rows if row.key == key), None)

    def with_life(self, place: int, life: Life | None) -> State:
        return self._replace(lives=(*self.lives[:place], life, *self.lives[place + 1 :]))

    def spent(self, **costs: int) -> State:
        left = {name: getattr(self.budget, name) - cost for name, cost in costs.items()}
        return self._replace(budget=self.budget._replace(**left))
