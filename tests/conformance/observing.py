"""A plain connection of the test: reads the stored rows, changes them, locks them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import URL, Connection, create_engine, event, text

from tests.conformance.kinds import Kind

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DRIVERS = {"sqlite": "pysqlite", "postgresql": "psycopg", "mysql": "pymysql", "mariadb": "pymysql"}
COLUMNS = (
    "lock_key",
    "owner_token",
    "attempt",
    "kind",
    "holder",
    "server_lock",
    "fencing_token",
    "acquired_at",
    "expires_at",
)
SQLITE_NOW = (
    "CAST(strftime('%s', 'now') AS INTEGER) * 1000000"
    " + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000"
)


@dataclass(frozen=True, slots=True)
class Stored:
    """One row as it stands, instants aware and in UTC."""

    lock_key: str
    owner_token: str
    attempt: str
    kind: str
    holder: str
    server_lock: str
    fencing_token: int
    acquired_at: datetime
    expires_at: datetime


class ForeignTransaction:
    """An open transaction that holds a row (on SQLite: the file) until it is ended."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.open = True

    def end(self) -> None:
        """Roll back; a second call does nothing."""
        if self.open:
            self.open = False
            self._connection.exec_driver_sql("ROLLBACK")


class Observer:
    """Speaks to the database as an onlooker would, without the library."""

    def __init__(self, kind: Kind, url: URL) -> None:
        self.server = kind.server
        self.url = url.set(drivername=f"{kind.server}+{DRIVERS[kind.server]}")
        self.engine = create_engine(self.url, isolation_level="AUTOCOMMIT")
        if self.server in {"mysql", "mariadb"}:
            event.listen(self.engine, "connect", _speak_utc)

    @property
    def clock(self) -> str:
        """Return the SQL for the database's clock as the table stores instants."""
        return {"sqlite": SQLITE_NOW, "postgresql": "clock_timestamp()"}.get(self.server, "SYSDATE(6)")

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()

    def rows(self, statement: str, /, **values: Any) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows, if it has any."""
        with self.engine.connect() as connection:
            result = connection.execute(text(statement), values)
            return [tuple(row) for row in result] if result.returns_rows else []

    def now(self) -> datetime:
        """Return the database's present moment."""
        return self._instant(self.rows(f"SELECT {self.clock}")[0][0])

    def stored(self, key: str, *, table: str = "core_locks") -> Stored | None:
        """Return the row of a key."""
        found = self.rows(f"SELECT {', '.join(COLUMNS)} FROM {table} WHERE lock_key = :key", key=key)
        if not found:
            return None
        values = dict(zip(COLUMNS, found[0], strict=True))
        for name in ("acquired_at", "expires_at"):
            values[name] = self._instant(values[name])
        return Stored(**values)

    def raw(self, key: str) -> tuple[Any, ...] | None:
        """Return the row as it lies there, on PostgreSQL with the place of its present version."""
        place = ", ctid::text, xmin::text" if self.server == "postgresql" else ""
        found = self.rows(
            f"SELECT {', '.join(COLUMNS)}{place} FROM core_locks WHERE lock_key = :key", key=key
        )
        return found[0] if found else None

    def set(self, key: str, **values: Any) -> None:
        """Change columns of a row; instants are given as ``datetime``."""
        changes = ", ".join(f"{name} = :{name}" for name in values)
        stored = {name: self._column(value) for name, value in values.items()}
        self.rows(f"UPDATE core_locks SET {changes} WHERE lock_key = :key", key=key, **stored)

    def expire(self, key: str, *, table: str = "core_locks") -> None:
        """Let the lease of a key end at this very moment."""
        self.rows(f"UPDATE {table} SET expires_at = {self.clock} WHERE lock_key = :key", key=key)

    @contextmanager
    def holding(self, key: str) -> Iterator[ForeignTransaction]:
        """Lock the row of a key in a transaction of somebody else (on SQLite the file)."""
        with self.engine.connect() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE" if self.server == "sqlite" else "BEGIN")
            foreign = ForeignTransaction(connection)
            try:
                if self.server != "sqlite":
                    lock = text("SELECT lock_key FROM core_locks WHERE lock_key = :key FOR UPDATE")
                    assert connection.execute(lock, {"key": key}).all(), f"no row of {key}"
                yield foreign
            finally:
                foreign.end()

    @contextmanager
    def inserting(self, key: str) -> Iterator[ForeignTransaction]:
        """Insert a row of a key in a transaction of somebody else, which is rolled back."""
        with self.engine.connect() as connection:
            connection.exec_driver_sql("BEGIN")
            foreign = ForeignTransaction(connection)
            try:
                values = f":key, 'o', 'a', 'lease', 'h', '', 1, {self.clock}, {self.clock}"
                row = text(f"INSERT INTO core_locks ({', '.join(COLUMNS)}) VALUES ({values})")
                connection.execute(row, {"key": key})
                yield foreign
            finally:
                foreign.end()

    def open_transactions(self) -> int:
        """Count the transactions that stand open in this database, except those of the observer."""
        if self.server == "postgresql":
            counted = (
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                " AND pid <> pg_backend_pid() AND state LIKE 'idle in transaction%'"
            )
        elif self.server == "sqlite":
            with self.holding(""):  # fails unless nobody else is writing
                return 0
        else:
            counted = (
                "SELECT count(*) FROM information_schema.innodb_trx t"
                " JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id"
                " WHERE p.db = database() AND p.id <> connection_id()"
            )
        return int(self.rows(counted)[0][0])

    def sessions(self) -> int:
        """Count the other sessions of the server on this database."""
        if self.server == "postgresql":
            counted = (
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                " AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )
        else:
            counted = (
                "SELECT count(*) FROM information_schema.processlist"
                " WHERE db = database() AND id <> connection_id()"
            )
        return int(self.rows(counted)[0][0])

    def _instant(self, value: Any) -> datetime:
        if isinstance(value, int):
            return EPOCH + timedelta(microseconds=value)
        assert isinstance(value, datetime)
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)

    def _column(self, value: Any) -> Any:
        if not isinstance(value, datetime):
            return value
        if self.server == "sqlite":
            return (value - EPOCH) // timedelta(microseconds=1)
        return value if self.server == "postgresql" else value.astimezone(UTC).replace(tzinfo=None)


def _speak_utc(connection: Any, _record: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
