"""The row that the demo protects: it keeps the highest token that wrote, and takes no lower one."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Executable,
    Integer,
    MetaData,
    Table,
    delete,
    insert,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError

from sqllocks.runtime.binding import engine_for
from sqllocks.schema import core_locks

__all__ = ["Ledger", "Written"]


@dataclass(frozen=True, slots=True)
class Written:
    """What stands in the ledger."""

    token: int
    writes: int


class Ledger:
    """A table of the demo's own with one row, reached by a connection of its own."""

    def __init__(self, url: str, name: str, schema: str | None) -> None:
        self._engine = engine_for(url, caller="sqllocks demo")
        self._table = Table(
            name,
            MetaData(),
            Column("id", Integer, primary_key=True, autoincrement=False),
            Column("token", BigInteger, nullable=False),
            Column("writes", Integer, nullable=False),
            schema=schema,
        )
        self._open: Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._disconnect()

    def create(self) -> None:
        """Make the table with its row."""
        self._table.create(self._connection())
        self._run(insert(self._table).values(id=1, token=0, writes=0))

    def write(self, token: int) -> bool:
        """Write under a fencing token; return whether the row took it.

        This is all that a protected resource has to do: compare, in the statement that writes.
        """
        row = self._table.c
        statement = (
            update(self._table)
            .where(row.id == 1, row.token <= token)
            .values(token=token, writes=row.writes + 1)
        )
        return bool(self._run(statement).rowcount)

    def read(self) -> Written:
        """Return the highest token that wrote, and how many writes there were."""
        token, writes = self._run(select(self._table.c.token, self._table.c.writes)).one()
        return Written(token, writes)

    def remove(self, *, lock_table: str, schema: str | None, key: str) -> None:
        """Drop the table, and delete the row that the demo's key left in the lock table."""
        self._table.drop(self._connection(), checkfirst=True)
        locks = core_locks(MetaData(), name=lock_table, schema=schema)
        self._run(delete(locks).where(locks.c.lock_key == key))

    def _connection(self) -> Connection:
        if self._open is None:
            self._open = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        return self._open

    def _run(self, statement: Executable) -> Any:
        try:
            return self._connection().execute(statement)
        except DBAPIError:
            self._disconnect()  # whatever it was, the next statement starts afresh
            raise

    def _disconnect(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None
