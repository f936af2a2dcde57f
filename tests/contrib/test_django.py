"""A Django project: locks on its own DATABASES, and one `migrate` at a time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from sqlalchemy import URL, create_engine, text

from sqllocks import SqlLockProvider
from tests.conformance.polling import until

ROOT = Path(__file__).resolve().parents[2]
KEY = "migrations:apply"


def environment(url: URL) -> dict[str, str]:
    """Return the settings of the example for a database."""
    engine = "sqlite3" if url.drivername == "sqlite" else "postgresql"
    settings = {
        "ENGINE": engine,
        "NAME": url.database,
        "USER": url.username,
        "HOST": url.host,
        "PORT": url.port,
    }
    settings["PASSWORD"] = url.password
    given = {f"DJANGO_DB_{name}": str(value) for name, value in settings.items() if value is not None}
    return {**os.environ, **given}


def site(url: URL, *arguments: str) -> subprocess.Popen[str]:
    """Start a command of the example project."""
    return subprocess.Popen(
        [sys.executable, "examples/django_site.py", *arguments],
        cwd=ROOT,
        env=environment(url),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_migrate_waits_for_its_turn_and_two_at_once_both_succeed(database: URL) -> None:
    sqlite = database.drivername == "sqlite"
    engine = create_engine(database.set(drivername="sqlite" if sqlite else "postgresql+psycopg"))
    with SqlLockProvider(engine) as locks:
        locks.create_table()
        with locks.hold(KEY, ttl=30):
            refused = site(database, "migrate", "--lock-wait", "0.1")
            # one more process takes its second to start
            migrations = [site(database, "migrate") for _ in range(1 if sqlite else 2)]
            told, _ = refused.communicate(timeout=60)
            assert refused.returncode == 1, told
            assert KEY in told
            assert "CommandError" in told
            assert not any(each.poll() is not None for each in migrations)
        outputs = [each.communicate(timeout=90)[0] for each in migrations]
        assert [each.returncode for each in migrations] == [0] * len(migrations), outputs
        done = ["Applying auth.0001_initial" in output for output in outputs]
        assert done.count(True) == 1, outputs
        until(lambda: not locks.locked(KEY))
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM django_migrations")).scalar()
    engine.dispose()


def test_a_provider_is_made_of_the_projects_own_databases(database: URL) -> None:
    engine = create_engine(
        database.set(drivername="sqlite" if database.drivername == "sqlite" else "postgresql+psycopg")
    )
    with SqlLockProvider(engine) as locks:
        locks.create_table()
        with site(database, "pay", "17") as paying:
            assert "paying 17 under token" in paying.communicate(timeout=60)[0]
        info = locks.inspect("invoice:17")
        assert info is not None
        assert not info.held
    engine.dispose()
