"""The backends, drivers and forms that the suite runs over."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
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

# drivers that share SQL, errors and values with the ones above: A to D on one server each, by default
MORE_KINDS = (
    Kind("mysql", "mysqldb", False),
    Kind("mariadb", "asyncmy", True),
)
ALL_MORE_KINDS = (
    *MORE_KINDS,
    Kind("mysql", "asyncmy", True),
    Kind("mariadb", "mysqldb", False),
)
SECTIONS = ("test_a_", "test_b_", "test_c_", "test_d_")
"""The files of the suite that the drivers of MORE_KINDS run through."""

CROWDED = {
    "postgresql-asyncpg-asyncio",
    "postgresql-psycopg-blocking",
    "mysql-pymysql-blocking",
    "sqlite-pysqlite-blocking",
}
"""Where some cases run with a crowd beside them, by default."""

# the name of the argument that a case takes tells where it runs
GROUPS: Mapping[str, Callable[[Kind], bool]] = {
    "subject": lambda kind: True,
    "table_subject": lambda kind: kind.table,
    "network_subject": lambda kind: kind.network,
    "mysql_subject": lambda kind: kind.server in {"mysql", "mariadb"},
    "sqlite_subject": lambda kind: kind.server == "sqlite",
    "asyncio_subject": lambda kind: kind.asyncio,
    "asyncio_table_subject": lambda kind: kind.table and kind.asyncio,
    "blocking_table_subject": lambda kind: kind.table and not kind.asyncio,
    "memory_subject": lambda kind: not kind.table,
    "crowded_subject": lambda kind: kind.name in CROWDED,
}


def driver_note() -> str:
    """Return which cases the drivers of MORE_KINDS run through, for the header of the report."""
    if os.environ.get("SQLLOCKS_DRIVERS") == "all":
        return "drivers: all cases on all drivers"
    some = ", ".join(f"{kind.driver} on {kind.server}" for kind in MORE_KINDS)
    return f"drivers: sections A to D alone on {some} (SQLLOCKS_DRIVERS=all: every case, on both servers)"


def kinds_of(groups: Collection[str], module: str) -> tuple[Kind, ...]:
    """Return where a case of a module runs that names these groups.

    ``SQLLOCKS_DRIVERS=all`` in the environment lets every driver run through every case.
    """
    kinds: tuple[Kind, ...] = KINDS
    if os.environ.get("SQLLOCKS_DRIVERS") == "all":
        kinds += ALL_MORE_KINDS
    elif module.rpartition(".")[2].startswith(SECTIONS):
        kinds += MORE_KINDS
    return tuple(kind for kind in kinds if all(GROUPS[group](kind) for group in groups))
