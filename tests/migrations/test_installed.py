"""An application with a history of its own uses the installed wheel, in either of the two ways."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.migrations.application import CREATE_LOG, DROP_LOG, Application
from tests.migrations.installed import Installed
from tests.unit.test_wheel import ROOT, wheel

__all__ = ["wheel"]

ENVIRONMENT = """
from alembic import context
from sqlalchemy import Column, Integer, MetaData, String, Table, create_engine
from sqllocks.alembic import migration_guard, without_core_locks
from sqllocks.schema import metadata as lock_metadata

url = context.config.get_main_option("sqlalchemy.url")
application = MetaData()
Table("migration_log", application, Column("revision", String(20)), Column("pid", Integer))
way = context.config.get_main_option("way")
options = {"target_metadata": [application, lock_metadata] if way == "metadata" else application}
if way == "filter":
    options["include_object"] = without_core_locks()
engine = create_engine(url)
with migration_guard(engine) as guard, engine.connect() as connection:
    context.configure(connection=connection, on_version_apply=guard.on_version_apply, **options)
    with context.begin_transaction():
        context.run_migrations()
"""
USE = """
import sys, sqllocks
with sqllocks.SqlLockProvider(sys.argv[1]) as provider, provider.hold("job", ttl=5) as lease:
    print(lease.fencing_token > 0)
"""


@pytest.fixture(scope="module")
def installed(wheel: object, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Return an environment with the wheel."""
    path = Path(str(getattr(wheel, "filename")))  # noqa: B009
    return Installed(path, tmp_path_factory.mktemp("installed") / "venv")


def alembic(installed: Installed, app: Application, *arguments: str) -> str:
    return installed.run("-m", "alembic", "-c", str(app.folder / "alembic.ini"), *arguments, cwd=app.folder)


def found_by_autogenerate(installed: Installed, app: Application, way: str, *arguments: str) -> str:
    """Return the body of a revision that Alembic generates."""
    app.ini(way=way, **include(installed))
    alembic(installed, app, "revision", "--autogenerate", "--rev-id", way, "-m", way, *arguments)
    [path] = app.folder.glob(f"versions/{way}_*.py")
    script = path.read_text()
    path.unlink()
    return script.partition("def upgrade()")[2]


def include(installed: Installed) -> dict[str, str]:
    script = "from sqllocks.alembic import version_location; print(version_location())"
    location = installed.run("-c", script, cwd=installed.folder).strip()
    assert Path(location).is_relative_to(installed.folder)
    assert not Path(location).is_relative_to(ROOT)
    return {"version_locations": f"%(here)s/versions {location}", "path_separator": "space"}


@pytest.mark.parametrize("server", ["sqlite"], indirect=True)
def test_one_history(app: Application, installed: Installed) -> None:
    app.revision("r1", CREATE_LOG, before=None, down=DROP_LOG)
    app.revision("r2", "op.create_core_locks()", before="r1", down="op.drop_core_locks()")
    (app.folder / "env.py").write_text(ENVIRONMENT)
    app.ini()
    alembic(installed, app, "upgrade", "head")
    assert app.tables() == {"alembic_version", "migration_log", "core_locks"}
    assert installed.run("-c", USE, app.address, cwd=app.folder) == "True\n"
    alembic(installed, app, "downgrade", "base")
    assert app.tables() == {"alembic_version"}


@pytest.mark.parametrize("server", ["postgresql"], indirect=True)
def test_an_include(app: Application, installed: Installed) -> None:
    app.revision("r1", CREATE_LOG, before=None, down=DROP_LOG)
    (app.folder / "env.py").write_text(ENVIRONMENT)
    (app.folder / "script.py.mako").write_text((ROOT / "migrations" / "script.py.mako").read_text())
    app.ini(**include(installed))
    with pytest.raises(AssertionError, match="Multiple head revisions"):
        alembic(installed, app, "upgrade", "head")
    alembic(installed, app, "upgrade", "sqllocks@head")
    assert app.heads() == ["sqllocks_0001"]
    alembic(installed, app, "upgrade", "heads")
    assert app.heads() == ["r1", "sqllocks_0001"]
    assert installed.run("-c", USE, app.address, cwd=app.folder) == "True\n"
    for way in ("filter", "metadata"):
        body = found_by_autogenerate(installed, app, way, "--head", "r1@head")
        assert "core_locks" not in body, body
    alembic(installed, app, "downgrade", "sqllocks@base")
    assert app.heads() == ["r1"]
    assert "core_locks" not in app.tables()
