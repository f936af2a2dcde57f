"""The metadata, the Alembic revision, create_table() and `sqllocks init` make the same table."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import URL, create_engine, inspect, make_url, text

from sqllocks import SqlLockProvider
from sqllocks import alembic as revisions
from sqllocks.schema import metadata
from tests.servers import fresh_database, require_server, url_for

BACKENDS = {"postgresql": "psycopg", "mysql": "pymysql", "mariadb": "pymysql", "sqlite": "pysqlite"}


@pytest.fixture(params=list(BACKENDS))
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], URL]]:
    """Return a function that makes one empty database after the other on one server."""
    backend: str = request.param
    made: list[Any] = []

    def make() -> URL:
        if backend == "sqlite":
            made.append(None)
            return make_url(f"sqlite:///{tmp_path}/locks{len(made)}.sqlite3")
        context = fresh_database(require_server(backend))
        url = context.__enter__()
        made.append(context)
        return url_for(url, BACKENDS[backend])

    yield make
    for context in made:
        if context is not None:
            context.__exit__(None, None, None)


def by_metadata(url: URL) -> None:
    engine = create_engine(url)
    metadata.create_all(engine)
    engine.dispose()


def by_revision(url: URL) -> None:
    command.upgrade(alembic_config(url), "sqllocks@head")


def by_create_table(url: URL) -> None:
    with SqlLockProvider(url) as provider:
        provider.create_table()


def by_command_line(url: URL) -> None:
    text_url = url.render_as_string(hide_password=False)
    subprocess.run([sys.executable, "-m", "sqllocks", "init", "--url", text_url], check=True, timeout=60)


def alembic_config(url: URL) -> Config:
    config = Config()
    config.set_main_option("script_location", revisions.script_location())
    config.set_main_option("sqlalchemy.url", url.render_as_string(hide_password=False).replace("%", "%%"))
    return config


def described(url: URL) -> Any:
    """Return everything that the server itself says of the table."""
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            if engine.dialect.name == "mysql":
                created = connection.execute(text("show create table core_locks")).one()[1]
                return re.sub(r"\s+", " ", created)
            if engine.dialect.name == "sqlite":
                created = connection.execute(text("select sql from sqlite_master where name = 'core_locks'"))
                return re.sub(r"\s+", " ", created.scalar_one())
            columns = connection.execute(
                text(
                    "select a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, c.collname "
                    "from pg_attribute a left join pg_collation c on c.oid = a.attcollation "
                    "where a.attrelid = 'core_locks'::regclass and a.attnum > 0 order by a.attnum"
                )
            ).all()
            options = connection.execute(
                text("select reloptions, relpersistence from pg_class where oid = 'core_locks'::regclass")
            ).one()
            return columns, options, inspect(connection).get_pk_constraint("core_locks")
    finally:
        engine.dispose()


def test_every_way_makes_the_same_table(new_database: Callable[[], URL]) -> None:
    seen: dict[str, Any] = {}
    for way in (by_metadata, by_revision, by_create_table, by_command_line):
        url = new_database()
        way(url)
        seen[way.__name__] = described(url)
    first = seen["by_metadata"]
    assert all(each == first for each in seen.values()), seen
    assert "core_locks" in str(first) or first[0]


def test_the_revision_goes_up_and_down(new_database: Callable[[], URL]) -> None:
    url = new_database()
    engine = create_engine(url)
    by_revision(url)
    assert inspect(engine).has_table("core_locks")
    by_revision(url)
    with SqlLockProvider(engine) as provider:
        assert provider.acquire("job", ttl=5)
    command.downgrade(alembic_config(url), "sqllocks@base")
    assert not inspect(engine).has_table("core_locks")
    engine.dispose()


def test_no_index_but_the_key(new_database: Callable[[], URL]) -> None:
    url = new_database()
    by_create_table(url)
    engine = create_engine(url)
    assert inspect(engine).get_indexes("core_locks") == []
    assert inspect(engine).get_pk_constraint("core_locks")["constrained_columns"] == ["lock_key"]
    engine.dispose()


def test_the_revision_has_its_own_branch_label() -> None:
    [path] = Path(revisions.version_location()).glob("*.py")
    assert 'branch_labels = ("sqllocks",)' in path.read_text()


def test_a_table_of_another_name_and_schema(tmp_path: Path) -> None:
    url = url_for(require_server("postgresql"), "psycopg")
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("create schema if not exists lock_home"))
    with SqlLockProvider(engine, table="Leases 2", schema="lock_home") as provider:
        provider.create_table()
        handle = provider.acquire("job", ttl=5)
        assert handle
        assert provider.release("job", owner_token=handle.owner_token)
    assert inspect(engine).has_table("Leases 2", schema="lock_home")
    with engine.begin() as connection:
        connection.execute(text("drop schema lock_home cascade"))
    engine.dispose()
