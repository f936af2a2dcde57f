"""S34: commits inside the run do not open the guard, and a migrator that lost it stops."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from sqlalchemy import text
from sqlalchemy.exc import ProgrammingError

from sqllocks import LeaseLost
from tests.migrations.application import CREATE_LOG, Application, apply, apply_and_tell
from tests.migrations.test_s33_failing_migrators import begin
from tests.scenarios.workers import Worker

pytestmark = [
    pytest.mark.parametrize("server", ["postgresql", "mariadb"], indirect=True),
    pytest.mark.parametrize(
        "modes", [{}, {"per_migration": "yes"}], ids=["one-transaction", "per-migration"]
    ),
]
KEY = "migrations:apply"
SAMPLE = 0.05
INDEX = """
log()
with op.get_context().autocommit_block():
    op.execute("create index {concurrently} migration_log_index on migration_log (pid)")
"""
CLOCKS = {"postgresql": "clock_timestamp()", "mariadb": "utc_timestamp(6)"}


def written(app: Application, server: str) -> Application:
    index = INDEX.format(concurrently="concurrently" if server == "postgresql" else "")
    app.write(r1=CREATE_LOG, r2=index, r3="log()\ngate()", r4="log()")
    return app


@contextmanager
def observed(app: Application, server: str) -> Iterator[list[tuple[int, bool]]]:
    """Sample the token of the guard, 0 where it is free, and then whether the last version is there."""
    samples: list[tuple[int, bool]] = []
    held = f"select fencing_token from core_locks where attempt <> '' and expires_at > {CLOCKS[server]}"
    over = threading.Event()

    def sample() -> None:
        # one connection: to connect takes longer than a sample may
        with app.engine() as engine, engine.connect() as connection:
            while not over.wait(SAMPLE):
                with suppress(ProgrammingError):  # there are no such tables yet
                    tokens = connection.execute(text(held)).scalars().all()
                    heads = (
                        connection.execute(text("select version_num from alembic_version")).scalars().all()
                    )
                    samples.append((sum(tokens), heads == ["r4"]))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()


def test_the_guard_is_held_until_the_last_version_is_committed(
    app: Application, server: str, modes: dict[str, str], workers: Callable[[int], list[Worker]]
) -> None:
    written(app, server)
    first, second = workers(2)
    with observed(app, server) as samples:
        migrating = begin(app, first, options=modes)
        # it stands in r3, after the autocommit block
        waiting = second.start(apply_and_tell, app, options=modes)
        limit = time.monotonic() + 60
        while not (app.folder / "waiting").exists():
            assert time.monotonic() < limit
            time.sleep(0.01)
        (app.folder / "go").touch()
        _, result, _ = migrating.result()
        _, late, _ = waiting.result()
    assert result.applied == ("r1", "r2", "r3", "r4")
    assert (late.applied, late.from_revisions) == ((), ("r4",))
    assert app.logged() == ["r1", "r2", "r3", "r4"]
    tokens = [token for token, done in samples if not done]
    while tokens and tokens[0] == 0:
        tokens.pop(0)
    assert len(tokens) > 2, "nothing was seen"
    assert set(tokens) == {tokens[0]}, tokens


def test_a_migrator_whose_lock_session_is_ended_stops_before_the_next_revision(
    app: Application, server: str, modes: dict[str, str], workers: Callable[[int], list[Worker]]
) -> None:
    written(app, server)
    [worker] = workers(1)
    migrating = begin(app, worker, options=modes)
    end_lock_session(app, server)
    (app.folder / "go").touch()
    error = migrating.outcome()
    assert isinstance(error, LeaseLost), error
    seen = error.details["migration"]
    assert "r4" not in app.logged()
    assert app.heads() == list(seen["to_revisions"])
    # r3 counts where its proof came before the news: the row of the lock was still this migrator's
    r3 = seen["applied"] == ("r1", "r2", "r3")
    if server == "mariadb":
        # each revision is a transaction here, and DDL cannot be undone
        assert r3 or seen["applied"] == ("r1", "r2")
        assert seen["partial"] == (None if r3 else "r3")
    elif modes:
        assert r3 or seen["applied"] == ("r1", "r2")
        assert seen["partial"] is None
    else:
        # all was undone after the commit in the middle of r2
        assert seen["applied"] == ("r1",)
        assert seen["partial"] == "r2"
        app.rows("drop index migration_log_index")
        app.rows("delete from migration_log where revision = 'r2'")
    assert apply(app, options=modes).to_revisions == ("r4",)
    assert app.logged() == ["r1", "r2", "r3", "r4"]


def end_lock_session(app: Application, server: str) -> None:
    if server == "postgresql":
        app.rows(
            "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and granted "
            "and mode = 'ExclusiveLock' "
            "and database = (select oid from pg_database where datname = current_database())"
        )
        return
    [(stored,)] = app.rows("select server_lock from core_locks where lock_key = :key", key=KEY)
    name = stored.removeprefix("name:").rpartition("@")[0]
    [(number,)] = app.rows("select is_used_lock(:name)", name=name)
    app.rows(f"kill {number}")
