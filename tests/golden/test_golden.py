"""What each dialect compiles to, kept as SQL files so that a review reads real SQL.

``SQLLOCKS_UPDATE_GOLDEN=1`` writes the files anew.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import MetaData
from sqlalchemy.dialects.mysql import aiomysql, pymysql
from sqlalchemy.dialects.postgresql import asyncpg, psycopg
from sqlalchemy.dialects.sqlite import pysqlite

from sqllocks.dialects import leases_for, sessions_for
from sqllocks.dialects.base import Statement
from sqllocks.schema import core_locks

FOLDER = Path(__file__).parent
BREAKS = re.compile(
    r"\s+(?=(?:FROM|WHERE|ORDER BY|FOR (?:NO KEY )?UPDATE|ON CONFLICT|ON DUPLICATE KEY|RETURNING|LEFT OUTER"
    r"|VALUES)\b)"
)


def mysql_dialect(*, mariadb: bool) -> Any:
    dialect: Any = pymysql.dialect()
    dialect.is_mariadb = mariadb
    dialect.server_version_info = (10, 11, 6) if mariadb else (9, 7, 0)
    dialect.supports_for_update_of = not mariadb
    dialect.insert_returning = mariadb
    return dialect


def dialect_of(name: str) -> Any:
    makers: dict[str, Any] = {
        "postgresql": psycopg.dialect,
        "mysql": lambda: mysql_dialect(mariadb=False),
        "mariadb": lambda: mysql_dialect(mariadb=True),
        "sqlite": pysqlite.dialect,
    }
    return makers[name]()


def compiled(name: str) -> str:
    dialect = dialect_of(name)
    leases = leases_for(dialect, core_locks(MetaData(), schema=None))
    parts = [f"-- session setup\n{text};\n" for text in leases.session_setup()]
    statements = (
        *leases.creates,
        leases.claim_free,
        leases.claim,
        leases.insert,
        leases.won,
        leases.renew,
        leases.own,
        leases.release,
        leases.release.at_once,
        leases.break_,
        leases.read,
        leases.list,
        leases.lockers,
        leases.stale,
        leases.remove,
    )
    return "\n".join([*parts, *written(dialect, statements)])


def compiled_sessions(name: str) -> str:
    """Return what a locker says on its session beside what ``compiled`` shows."""
    dialect = dialect_of(name)
    sql = sessions_for(dialect, core_locks(MetaData(), schema=None))
    parts = [f"-- {what}\n{text};\n" for what, text in sql.settings(15, 5)]
    statements = (
        sql.identity,
        sql.begin,
        sql.rollback,
        sql.take,
        sql.claim,
        sql.insert,
        sql.revive,
        sql.beat,
        sql.release,
        sql.unlock,
    )
    return "\n".join([*parts, *written(dialect, statements)])


def written(dialect: Any, statements: Iterable[Statement | None]) -> list[str]:
    """Return each statement as text under its name."""
    parts = []
    for statement in statements:
        for each in (statement, statement and statement.single):
            if each is not None:
                text = str(each.clause.compile(dialect=dialect)).strip()
                lines = [line.rstrip() for line in BREAKS.sub("\n", text).splitlines()]
                title = each.name if each is statement else f"{each.name}, single"
                parts.append(f"-- {title}\n" + "\n".join(lines) + ";\n")
    return parts


@pytest.mark.parametrize("name", ["postgresql", "mysql", "mariadb", "sqlite"])
def test_statements_are_as_reviewed(name: str) -> None:
    path = FOLDER / f"{name}.sql"
    text = compiled(name)
    if os.environ.get("SQLLOCKS_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("name", ["postgresql", "mysql", "mariadb"])
def test_statements_of_sessions_are_as_reviewed(name: str) -> None:
    path = FOLDER / f"{name}_session.sql"
    text = compiled_sessions(name)
    if os.environ.get("SQLLOCKS_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_functions_of_postgresql_are_called_by_their_schema() -> None:
    text = compiled_sessions("postgresql")
    assert "pg_catalog.pg_try_advisory_lock" in text
    assert not re.search(r"(?<!pg_catalog\.)\bpg_(?:try_)?advisory_\w+\(", text)
    # a blocking one would make CREATE INDEX CONCURRENTLY deadlock
    assert not re.search(r"pg_advisory_lock\(", text)


@pytest.mark.parametrize("name", ["postgresql", "mysql", "mariadb", "sqlite"])
def test_only_the_servers_running_clock_decides(name: str) -> None:
    clocks = r"now\(\)|current_timestamp|localtime|utc_timestamp|transaction_timestamp|statement_timestamp"
    assert not re.search(clocks, compiled(name), re.IGNORECASE)
    if name != "sqlite":
        on_rows = compiled_sessions(name).partition("-- take")[2]
        assert not re.search(clocks, on_rows, re.IGNORECASE)


@pytest.mark.parametrize("driver", [asyncpg, aiomysql], ids=["asyncpg", "aiomysql"])
def test_each_statement_compiles_for_asyncio_drivers(driver: Any) -> None:
    dialect = driver.dialect()
    leases = leases_for(dialect, core_locks(MetaData(), name="locks", schema="app"))
    text = str(leases.claim.clause.compile(dialect=dialect))
    assert "app.locks" in text
