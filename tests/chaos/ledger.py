"""The application's tables: a counter for each key, and a row for each time that it was counted up."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import BigInteger, Column, Engine, Integer, MetaData, String, Table

from tests.chaos.history import Write

_metadata = MetaData()
counters = Table(
    "chaos_counters",
    _metadata,
    Column("lock_key", String(64), primary_key=True),
    Column("number", Integer, nullable=False),
)
writes = Table(
    "chaos_writes",
    _metadata,
    Column("id", Integer, primary_key=True),
    Column("lock_key", String(64), nullable=False),
    Column("number", Integer, nullable=False),
    Column("token", BigInteger, nullable=False),
    Column("worker", String(64), nullable=False),
)


def create(engine: Engine, keys: Iterable[str]) -> None:
    """Create the tables, with a counter for each key."""
    _metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(counters.insert(), [{"lock_key": key, "number": 0} for key in keys])


def read(engine: Engine) -> list[Write]:
    """Return what was written, in the order in which the counters went up."""
    with engine.connect() as connection:
        rows = connection.execute(writes.select().order_by(writes.c.lock_key, writes.c.number, writes.c.id))
        return [Write(row.lock_key, row.number, row.token, row.worker) for row in rows]
