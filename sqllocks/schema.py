"""The table ``core_locks``: one row per key, kept after a release so that fencing tokens go on."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import DDL, BigInteger, Column, DateTime, MetaData, String, Table, event
from sqlalchemy.dialects.mysql import DATETIME
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.types import TypeDecorator, TypeEngine

__all__ = [
    "POSTGRESQL_STORAGE",
    "TABLE_NAME",
    "ByteString",
    "Instant",
    "core_locks",
    "from_microseconds",
    "init_command",
    "metadata",
    "to_microseconds",
]

TABLE_NAME = "core_locks"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def from_microseconds(value: int) -> datetime:
    """Return the aware UTC instant that lies ``value`` microseconds after the epoch."""
    return EPOCH + timedelta(microseconds=value)


def to_microseconds(instant: datetime) -> int:
    """Return whole microseconds since the epoch; a naive instant is read as UTC."""
    aware = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
    return (aware - EPOCH) // timedelta(microseconds=1)


class ByteString(String):
    """Text that every database compares byte for byte, trailing blanks included.

    The default collations of MySQL and MariaDB merge ``Job``, ``job`` and ``Jób``, and their
    padding ones ``Job`` and ``Job `` too; the two servers have no such collation in common.
    """

    __visit_name__ = "byte_string"


@compiles(ByteString)
def _byte_string(type_: ByteString, compiler: Any, **_: Any) -> str:
    return f"VARCHAR({type_.length})"


@compiles(ByteString, "postgresql")
def _byte_string_postgresql(type_: ByteString, compiler: Any, **_: Any) -> str:
    return f'VARCHAR({type_.length}) COLLATE "C"'


@compiles(ByteString, "mysql")
@compiles(ByteString, "mariadb")
def _byte_string_mysql(type_: ByteString, compiler: Any, **_: Any) -> str:
    collation = "utf8mb4_nopad_bin" if compiler.dialect.is_mariadb else "utf8mb4_0900_bin"
    return f"VARCHAR({type_.length}) CHARACTER SET utf8mb4 COLLATE {collation}"


class Instant(TypeDecorator[datetime]):
    """An aware UTC ``datetime`` with microseconds, stored so that sorting and arithmetic are exact.

    PostgreSQL: ``timestamptz``. MySQL, MariaDB: ``DATETIME(6)`` in UTC (a bare ``DATETIME`` drops the
    fraction, ``TIMESTAMP`` depends on the session's zone). SQLite: microseconds since the epoch.
    """

    impl = DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name == "sqlite":
            return dialect.type_descriptor(BigInteger())
        if dialect.name in {"mysql", "mariadb"}:
            return dialect.type_descriptor(DATETIME(fsp=6))
        return dialect.type_descriptor(DateTime(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        if value is None:
            return None
        microseconds = to_microseconds(value)
        if dialect.name == "sqlite":
            return microseconds
        aware = from_microseconds(microseconds)
        return aware.replace(tzinfo=None) if dialect.name in {"mysql", "mariadb"} else aware

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return from_microseconds(value if isinstance(value, int) else to_microseconds(value))


# Updates stay in their page (no index but the key, room in each page), and the few dead rows are
# collected early: a lock table is small and changes all the time. A statement of its own, because
# CREATE TABLE takes these settings from SQLAlchemy 2.1 on only.
POSTGRESQL_STORAGE: Any = DDL(  # type: ignore[no-untyped-call]
    "ALTER TABLE %(fullname)s SET (fillfactor = 50, "
    "autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000, "
    "autovacuum_analyze_scale_factor = 0.0, autovacuum_analyze_threshold = 5000)"
)


def core_locks(metadata: MetaData, *, name: str = TABLE_NAME, schema: str | None = None) -> Table:
    """Return the lock table, added to ``metadata``.

    A row is free while ``attempt`` is empty or ``expires_at`` is not in the future by the
    database's clock; otherwise ``owner_token`` holds it under ``fencing_token``.
    """
    table = Table(
        name,
        metadata,
        Column("lock_key", ByteString(255), primary_key=True),
        Column("owner_token", ByteString(128), nullable=False),
        Column("attempt", ByteString(32), nullable=False),
        Column("kind", ByteString(16), nullable=False),
        Column("holder", ByteString(255), nullable=False),
        Column("server_lock", ByteString(255), nullable=False),
        Column("fencing_token", BigInteger, nullable=False, autoincrement=False),
        Column("acquired_at", Instant, nullable=False),
        Column("expires_at", Instant, nullable=False),
        schema=schema,
        mysql_engine="InnoDB",
        mariadb_engine="InnoDB",
    )
    event.listen(table, "after_create", POSTGRESQL_STORAGE.execute_if(dialect="postgresql"))
    return table


metadata = MetaData()
"""Holds the table under its default name, for those who pass it to Alembic or create it themselves."""
core_locks(metadata)


def init_command(name: str) -> str:
    """Return the command line that makes the table of that name, which may have a schema before it."""
    schema, _, table = name.rpartition(".")
    options = f" --schema {shlex.quote(schema)}" if schema else ""
    if table != TABLE_NAME:
        options += f" --table {shlex.quote(table)}"
    return f"sqllocks init --url URL{options}"
