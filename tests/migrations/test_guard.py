"""migration_guard: in env.py, around commands, through a pooler, and proven again with every step."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from alembic import command
from sqlalchemy import create_engine

from sqllocks import LeaseLost, LockTimeout, SqlLockProvider
from sqllocks.alembic import migration_guard
from sqllocks.cli import main
from tests.migrations.application import CREATE_LOG, DROP_LOG, Application
from tests.servers import require_server, url_for

KEY = "migrations:apply"


def test_alembics_own_command_waits_at_the_guard_of_the_environment(app: Application) -> None:
    app.write(r1=CREATE_LOG)
    environment = app.folder / "env.py"
    environment.write_text(environment.read_text().replace("wait=30", "wait=0.2"))
    with SqlLockProvider(app.address) as provider:
        provider.create_table()
        with provider.hold(KEY, ttl=30), pytest.raises(LockTimeout, match=f"'{KEY}' is not free after"):
            app.upgrade(guarded="yes")
        assert app.tables() == {"core_locks"}
        app.upgrade(guarded="yes")
        assert app.heads() == ["r1"]
        assert not provider.locked(KEY)


def test_a_downgrade_may_drop_the_lock_table_under_the_guard(app: Application) -> None:
    app.write()
    app.revision("r1", CREATE_LOG, before=None, down=DROP_LOG)
    app.revision("r2", "op.create_core_locks()", before="r1", down="op.drop_core_locks()")
    app.upgrade(guarded="yes")
    assert app.tables() == {"alembic_version", "migration_log", "core_locks"}
    command.downgrade(app.config(guarded="yes"), "base")
    assert app.tables() == {"alembic_version"}


def test_the_loss_is_seen_after_the_step_and_what_can_be_undone_is_undone(app: Application) -> None:
    app.write(r1=CREATE_LOG, r2="lose()\nlog()", r3="log()")
    environment = app.folder / "env.py"
    script = environment.read_text() + "\n"
    lose = f"""
def lose():
    from sqllocks import SqlLockProvider
    with SqlLockProvider({app.address!r}) as provider:
        assert provider.break_lock({KEY!r})
"""
    path = app.folder / "versions" / "r2.py"
    path.write_text(path.read_text().replace("\ndef gate", f"{lose}\ndef gate"))
    environment.write_text(script)
    with pytest.raises(LeaseLost):
        app.upgrade(guarded="yes", per_migration="yes")
    assert app.heads() == ["r1"]
    assert app.logged() == ["r1"]


@pytest.mark.parametrize("server", ["sqlite"], indirect=True)
def test_a_guard_whose_hook_nobody_took_warns(app: Application) -> None:
    app.write(r1=CREATE_LOG)
    with (
        pytest.warns(RuntimeWarning, match="pass its on_version_apply to") as caught,
        migration_guard(app.address),
    ):
        app.upgrade()
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        app.upgrade(guarded="yes")


@pytest.mark.parametrize("server", ["sqlite"], indirect=True)
def test_a_guard_inside_a_guard_of_the_same_key_is_that_guard(app: Application) -> None:
    app.write(r1=CREATE_LOG)
    with migration_guard(app.address) as outer, migration_guard(app.address, wait=0) as inner:
        assert inner is outer
        app.upgrade(guarded="yes")
    with migration_guard(app.address) as outer, migration_guard(app.address, key="other") as inner:
        assert inner.on_version_apply != outer.on_version_apply


@pytest.mark.parametrize("server", ["postgresql"], indirect=True)
def test_through_a_pooler_and_directly_never_both(app: Application) -> None:
    database = app.address.rpartition("/")[2]
    pooled = create_engine(
        url_for(require_server("pgbouncer"), "psycopg").set(database=database),
        connect_args={"prepare_threshold": None},
    )
    for first, second in ((pooled, app.address), (app.address, pooled)):
        with migration_guard(first, wait=5) as guard:
            # in another thread: in this one it would be the same guard
            with ThreadPoolExecutor(1) as threads, pytest.raises(LockTimeout):
                threads.submit(enter, second).result()
            assert guard.on_version_apply is not None
    enter(pooled)
    pooled.dispose()


def enter(bind: Any) -> None:
    with migration_guard(bind, wait=0) as guard:
        assert guard.on_version_apply is not None


@pytest.mark.parametrize("server", ["sqlite"], indirect=True)
def test_the_command_line(
    app: Application, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    app.write(r1=CREATE_LOG, r2="log()")
    ini = app.ini()

    def migrate(*arguments: str) -> tuple[int, str]:
        return main(["migrate", "-c", str(ini), *arguments]), capsys.readouterr().out

    assert migrate("upgrade", "r1") == (0, "Applied 1 revision, now at r1: r1\n")
    assert migrate("upgrade", "nowhere") == (1, "")
    with SqlLockProvider(app.address, holder="the other one") as provider, provider.hold(KEY, ttl=60):
        assert main(["migrate", "-c", str(ini), "--wait", "0.2"]) == 75
    assert "waiting up to 0.2 s for 'migrations:apply': it is held by 'the other one'" in caplog.text
    assert "sqllocks break migrations:apply" in capsys.readouterr().err
    assert migrate("--url", app.address) == (0, "Applied 1 revision, now at r2: r2\n")
    assert migrate() == (0, "Nothing to do at r2\n")
    ini.unlink()
    assert migrate()[0] == 64
