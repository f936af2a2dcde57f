"""apply_migrations: what it does where the lock is taken, where nothing is missing, and where it fails."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from alembic.util import CommandError
from sqlalchemy import create_engine

from sqllocks import LockTimeout, LockValidationError, SqlLockProvider
from sqllocks.alembic import MigrationResult, apply_migrations, migration_guard
from tests.migrations.application import CREATE_LOG, Application, apply

KEY = "migrations:apply"


@contextmanager
def locks(app: Application) -> Iterator[SqlLockProvider]:
    with SqlLockProvider(app.address, holder="the other one") as provider:
        provider.create_table()
        yield provider


def test_where_the_lock_is_held_no_step_runs_and_the_holder_keeps_it(app: Application) -> None:
    app.write(r1=CREATE_LOG)
    with locks(app) as provider, provider.hold(KEY, ttl=30) as lease:
        for wait in (0, 0.3):
            with pytest.raises(LockTimeout) as caught:
                apply_migrations(app.config(), wait=wait)
        for part in (KEY, "'the other one'", "since 2", "after a wait of 0.3 s", f"sqllocks break {KEY}"):
            assert part in caught.value.message
        assert caught.value.details["lock_key"] == KEY
        assert app.tables() == {"core_locks"}
        lease.check()
        assert provider.locked(KEY)


def test_the_key_is_free_after_it_ran_failed_or_mismatched(app: Application) -> None:
    app.write(r1=CREATE_LOG, r2='raise RuntimeError("r2 is broken")')
    with locks(app) as provider:
        with pytest.raises(RuntimeError, match="r2 is broken"):
            apply(app, options={"per_migration": "yes"})
        assert not provider.locked(KEY)
        assert app.heads() == ["r1"]
        app.write(r1=CREATE_LOG, r2="log()")
        assert apply(app) == MigrationResult(("r1",), ("r2",), ("r2",), 0.0)
        assert not provider.locked(KEY)
        app.rows("update alembic_version set version_num = 'unheard-of'")
        with pytest.raises(CommandError, match="unheard-of"):
            apply(app)
        assert not provider.locked(KEY)


def test_at_the_head_no_lock_is_taken(app: Application) -> None:
    app.write(r1=CREATE_LOG)
    app.upgrade()
    assert apply_migrations(app.config()) == MigrationResult(("r1",), ("r1",), (), 0.0)
    assert "core_locks" not in app.tables()
    with locks(app) as provider, provider.hold(KEY, ttl=30):
        assert apply_migrations(app.config(guarded="yes"), wait=0).applied == ()


def test_the_lock_table_may_come_from_a_revision_that_runs_under_the_lock(app: Application) -> None:
    app.write()
    app.revision("r1", "op.create_core_locks()", before=None, down="op.drop_core_locks()")
    assert apply(app).applied == ("r1",)
    with migration_guard(app.address, wait=0) as guard:
        guard.on_version_apply  # noqa: B018  as if it were passed on
        guard.check()


@pytest.mark.parametrize("server", ["postgresql", "sqlite"], indirect=True)
def test_the_lock_may_be_kept_in_another_database(app: Application) -> None:
    app.write(r1=CREATE_LOG)
    elsewhere = f"sqlite:///{app.folder}/locks.sqlite3"
    config = app.config()
    config.attributes["sqllocks.bind"] = elsewhere
    with SqlLockProvider(elsewhere) as provider:
        provider.create_table()
        with provider.hold(KEY, ttl=30), pytest.raises(LockTimeout):
            apply_migrations(config, wait=0)
        assert apply_migrations(config).applied == ("r1",)
    assert "core_locks" not in app.tables()


@pytest.mark.parametrize("server", ["postgresql"], indirect=True)
def test_an_environment_of_asyncio(app: Application) -> None:
    app.write(r1=CREATE_LOG, r2="log()")
    asyncio_environment = """
import asyncio
from alembic import context
from sqlalchemy.ext.asyncio import create_async_engine

def migrate(connection):
    context.configure(connection=connection)
    with context.begin_transaction():
        context.run_migrations()

async def online():
    url = context.config.get_main_option("sqlalchemy.url").replace("psycopg", "asyncpg")
    engine = create_async_engine(url)
    async with engine.connect() as connection:
        await connection.run_sync(migrate)
    await engine.dispose()

asyncio.run(online())
"""
    (app.folder / "env.py").write_text(asyncio_environment)
    assert apply(app).applied == ("r1", "r2")
    assert app.heads() == ["r2"]


@pytest.mark.parametrize("server", ["sqlite"], indirect=True)
def test_a_thread_that_migrates_keeps_the_others_from_alembic(app: Application) -> None:
    app.write(r1="gate()")
    thread = threading.Thread(target=apply, args=(app,))
    thread.start()
    while not (app.folder / "reached").exists():
        thread.join(0.02)
        assert thread.is_alive()
    with pytest.raises(LockTimeout, match="another thread of this process"):
        apply(app, wait=0)
    (app.folder / "go").touch()
    thread.join(60)
    assert app.heads() == ["r1"]


@pytest.mark.parametrize("server", ["sqlite"], indirect=True)
def test_arguments_are_checked_first(app: Application) -> None:
    for wrong in (-1, "soon"):
        with pytest.raises(LockValidationError):
            apply_migrations(app.config(), wait=wrong)  # type: ignore[arg-type]
    with pytest.raises(LockValidationError), migration_guard(app.address, ttl=0):
        pass
    engine = create_engine(app.address)
    with engine.connect() as connection, pytest.raises(TypeError), migration_guard(connection):
        pass
    with pytest.raises(CommandError, match="nowhere"):
        apply_migrations(app.config(), "nowhere")
    engine.dispose()
    assert app.tables() == set()


def test_a_result_can_be_pickled() -> None:
    result = MigrationResult(("a",), ("b",), ("b",), 1.5, None)
    assert pickle.loads(pickle.dumps(result)) == result
