"""op.create_core_locks() and op.drop_core_locks(): in an application's history, online and as a script."""

from __future__ import annotations

import io
import re

import pytest
from alembic import command
from sqlalchemy import inspect, make_url

from sqllocks import SqlLockProvider
from sqllocks.alembic import CreateCoreLocksOp, DropCoreLocksOp
from tests.migrations.application import Application
from tests.migrations.test_schema import by_metadata, described


def written(app: Application, arguments: str = "") -> Application:
    app.write()
    app.revision(
        "r1", f"op.create_core_locks({arguments})", before=None, down=f"op.drop_core_locks({arguments})"
    )
    return app


def by_hand(app: Application) -> object:
    """Return the table as the metadata makes it, and leave no table behind."""
    by_metadata(make_url(app.address))
    made = described(make_url(app.address))
    app.rows("drop table core_locks")
    return made


def script(app: Application, server: str, revisions: str, *, down: bool = False) -> str:
    """Return what Alembic writes with --sql."""
    config = app.config()
    if server == "mariadb":
        # without a connection the URL alone can tell
        config.set_main_option("sqlalchemy.url", app.address.replace("mysql+", "mariadb+"))
    config.output_buffer = buffer = io.StringIO()
    (command.downgrade if down else command.upgrade)(config, revisions, sql=True)
    return buffer.getvalue()


def execute(app: Application, statements: str) -> None:
    with app.engine() as engine, engine.connect() as connection:
        for statement in re.sub("--.*", "", statements).split(";"):
            if statement.strip():
                connection.exec_driver_sql(statement)


def test_the_table_is_that_of_the_schema_and_goes_again(app: Application) -> None:
    expected = by_hand(written(app))
    app.upgrade("head")
    assert described(make_url(app.address)) == expected
    with SqlLockProvider(app.address) as provider:
        assert provider.acquire("job", ttl=5)
    command.downgrade(app.config(), "base")
    assert app.tables() == {"alembic_version"}


def test_a_table_that_is_there_already_stays(app: Application) -> None:
    written(app)
    with SqlLockProvider(app.address) as provider:
        provider.create_table()
        handle = provider.acquire("job", ttl=60)
        app.upgrade("head")
        assert provider.extend("job", owner_token=handle.owner_token, ttl=60)


def test_offline_it_writes_a_script_that_makes_the_same_table(app: Application, server: str) -> None:
    expected = by_hand(written(app))
    execute(app, script(app, server, "head"))
    assert described(make_url(app.address)) == expected
    assert app.heads() == ["r1"]
    execute(app, script(app, server, "r1:base", down=True))
    assert "core_locks" not in app.tables()


@pytest.mark.parametrize("server", ["postgresql"], indirect=True)
def test_with_another_name_and_schema(app: Application) -> None:
    written(app, 'table="Leases 2", schema="lock_home"')
    app.rows("create schema lock_home")
    app.upgrade("head")
    with SqlLockProvider(app.address, table="Leases 2", schema="lock_home") as provider:
        assert provider.acquire("job", ttl=5)
    [(options,)] = app.rows("select reloptions from pg_class where relname = 'Leases 2'")
    assert "fillfactor=50" in options
    command.downgrade(app.config(), "base")
    with app.engine() as engine:
        assert not inspect(engine).has_table("Leases 2", schema="lock_home")


def test_each_operation_can_be_reversed() -> None:
    create = CreateCoreLocksOp(table="t", schema="s")
    drop = create.reverse()
    assert isinstance(drop, DropCoreLocksOp)
    assert (drop.table, drop.schema) == ("t", "s")
    assert drop.reverse().table == "t"
