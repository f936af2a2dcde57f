"""An application with a history of its own uses the installed wheel, in either of the two ways."""

from __future__ import annotations

import json
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
way = context.get_x_argument(as_dictionary=True).get("way")
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


# one process for several commands of alembic: it takes longer to start than to do them
COMMANDS = """
import contextlib, io, json, sys
from alembic.config import main
for arguments in json.loads(sys.argv[1]):
    err = io.StringIO()
    with contextlib.redirect_stdout(err), contextlib.redirect_stderr(err):
        try:
            main(["-c", "alembic.ini", *arguments])
            code = 0
        except SystemExit as error:
            code = error.code
    print(json.dumps([code, err.getvalue()]))
"""


def alembic(installed: Installed, app: Application, *commands: str) -> list[tuple[int, str]]:
    """Run commands of alembic, and return the exit code and the output of each."""
    split = json.dumps([command.split() for command in commands])
    lines = installed.run("-c", COMMANDS, split, cwd=app.folder).splitlines()
    return [(code, said) for code, said in map(json.loads, lines)]


def location(installed: Installed) -> Path:
    """Return where the installed library has its revisions."""
    script = "from sqllocks.alembic import version_location; print(version_location())"
    path = Path(installed.run("-c", script, cwd=installed.folder).strip())
    assert path.is_relative_to(installed.folder)
    assert not path.is_relative_to(ROOT)
    return path


@pytest.mark.parametrize("server", ["sqlite"], indirect=True)
def test_one_history(app: Application, installed: Installed) -> None:
    app.revision("r1", CREATE_LOG, before=None, down=DROP_LOG)
    app.revision("r2", "op.create_core_locks()", before="r1", down="op.drop_core_locks()")
    (app.folder / "env.py").write_text(ENVIRONMENT)
    app.ini()
    assert [code for code, _ in alembic(installed, app, "upgrade head", "upgrade head")] == [0, 0]
    assert app.tables() == {"alembic_version", "migration_log", "core_locks"}
    assert installed.run("-c", USE, app.address, cwd=app.folder) == "True\n"
    assert alembic(installed, app, "downgrade base")[0][0] == 0
    assert app.tables() == {"alembic_version"}


@pytest.mark.parametrize("server", ["postgresql"], indirect=True)
def test_an_include(app: Application, installed: Installed) -> None:
    app.revision("r1", CREATE_LOG, before=None, down=DROP_LOG)
    (app.folder / "env.py").write_text(ENVIRONMENT)
    (app.folder / "script.py.mako").write_text((ROOT / "migrations" / "script.py.mako").read_text())
    app.ini(version_locations=f"%(here)s/versions {location(installed)}", path_separator="space")
    one, other, both, revision, *generated = alembic(
        installed,
        app,
        "upgrade head",
        "upgrade sqllocks@head",
        "upgrade heads",
        "revision --rev-id r2",
        "-x way=filter revision --autogenerate --rev-id filter --head r1@head",
        "upgrade heads",
        "-x way=metadata revision --autogenerate --rev-id metadata --head filter@head",
    )
    for code, said in (one, revision):
        assert code != 0
        assert "Multiple head" in said
    assert [code for code, _ in (other, both, *generated)] == [0] * 5, generated
    for way in ("filter", "metadata"):
        [path] = app.folder.glob(f"versions/{way}_*.py")
        body = path.read_text().partition("def upgrade()")[2]
        assert "pass" in body
        assert "core_locks" not in body
    assert app.heads() == ["filter", "sqllocks_0001"]
    assert installed.run("-c", USE, app.address, cwd=app.folder) == "True\n"
    assert alembic(installed, app, "downgrade sqllocks@base")[0][0] == 0
    assert app.heads() == ["filter"]
    assert "core_locks" not in app.tables()
