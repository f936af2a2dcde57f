"""The backends, drivers and forms that the suite runs over."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import URL


@dataclass(frozen=True, slots=True)
class Kind:
    """One backend, spoken to through one driver, in the blocking or the asyncio form."""

    server: str
    driver: str
    asyncio: bool

    @property
    def name(self) -> str:
        """Return the text that stands in the brackets of a test's id."""
        form = "asyncio" if self.asyncio else "blocking"
        return "-".join(part for part in (self.server, self.driver, form) if part)

    @property
    def table(self) -> bool:
        """Tell whether the locks are rows of a table."""
        return self.server != "memory"

    @property
    def network(self) -> bool:
        """Tell whether a server with row locks is behind it."""
        return self.server in {"postgresql", "mysql", "mariadb"}

    def url(self, base: URL) -> URL:
        """Return the address of the same database for this driver."""
        return base.set(drivername=f"{self.server}+{self.driver}")


KINDS = (
    Kind("memory", "", False),
    Kind("memory", "", True),
    Kind("sqlite", "pysqlite", False),
    Kind("sqlite", "aiosqlite", True),
    Kind("postgresql", "psycopg", False),
    Kind("postgresql", "psycopg", True),
    Kind("postgresql", "asyncpg", True),
    Kind("mysql", "pymysql", False),
    Kind("mysql", "aiomysql", True),
    Kind("mariadb", "pymysql", False),
    Kind("mariadb", "aiomysql", True),
)

# the name of the argument that a case takes tells where it runs
GROUPS = {
    "subject": KINDS,
    "table_subject": tuple(kind for kind in KINDS if kind.table),
    "network_subject": tuple(kind for kind in KINDS if kind.network),
    "mysql_subject": tuple(kind for kind in KINDS if kind.server in {"mysql", "mariadb"}),
    "sqlite_subject": tuple(kind for kind in KINDS if kind.server == "sqlite"),
    "asyncio_subject": tuple(kind for kind in KINDS if kind.asyncio),
    "asyncio_table_subject": tuple(kind for kind in KINDS if kind.table and kind.asyncio),
    "blocking_table_subject": tuple(kind for kind in KINDS if kind.table and not kind.asyncio),
    "memory_subject": tuple(kind for kind in KINDS if not kind.table),
}
