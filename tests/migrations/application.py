"""An application with an Alembic history of its own, in a folder, on a database of its own."""

from __future__ import annotations

import contextlib
import logging
import os
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import URL, Engine, create_engine, inspect, make_url, text

from sqllocks.alembic import MigrationResult
from sqllocks.alembic.applying import run
from sqllocks.alembic.guarding import DEFAULT_KEY, wish
from tests.servers import fresh_database, require_server, url_for

DRIVERS = {"postgresql": "psycopg", "mysql": "pymysql", "mariadb": "pymysql", "sqlite": "pysqlite"}
SERVERS = tuple(DRIVERS)
TTL = 15.0

ENVIRONMENT = """
from contextlib import nullcontext
from alembic import context
from sqlalchemy import create_engine, pool
from sqllocks.alembic import migration_guard

option = context.config.get_main_option
url = option("sqlalchemy.url")

def migrate(**options):
    context.configure(transaction_per_migration=option("per_migration") is not None, **options)
    with context.begin_transaction():
        context.run_migrations()

def online():
    engine = create_engine(url, poolclass=pool.NullPool)
    with migration_guard(engine, wait=30) if option("guarded") else nullcontext() as guard:
        with engine.connect() as connection:
            migrate(connection=connection, on_version_apply=guard.on_version_apply if guard else None)

if context.is_offline_mode():
    migrate(url=url, literal_binds=True)
else:
    online()
"""
REVISION = """
import os, pathlib, time
from alembic import op
import sqllocks.alembic

revision = {name!r}
down_revision = {before!r}
folder = pathlib.Path(__file__).parents[1]

def log():
    op.execute("insert into migration_log values ('{name}', %d)" % os.getpid())

def gate():
    (folder / "reached").touch()
    limit = time.monotonic() + 60
    while not (folder / "go").exists():
        assert time.monotonic() < limit, "nobody opened the gate"
        time.sleep(0.01)

def upgrade():
{up}

def downgrade():
{down}
"""
CREATE_LOG = 'op.execute("create table migration_log (revision varchar(20), pid int)")\nlog()'
DROP_LOG = 'op.execute("drop table migration_log")'


@dataclass(frozen=True, slots=True)
class Application:
    """Where the application and its database are; can be pickled."""

    folder: Path
    address: str

    def write(self, **revisions: str) -> None:
        """Write the revisions, one after the other, each given as the text of its ``upgrade``."""
        (self.folder / "versions").mkdir(parents=True, exist_ok=True)
        (self.folder / "env.py").write_text(ENVIRONMENT)
        before = None
        for name, up in revisions.items():
            self.revision(name, up, before=before)
            before = name

    def revision(self, name: str, up: str, *, before: str | None, down: str = "pass") -> None:
        """Write one revision."""
        bodies = {"up": textwrap.indent(up, "    "), "down": textwrap.indent(down, "    ")}
        script = REVISION.format(name=name, before=before, **bodies)
        (self.folder / "versions" / f"{name}.py").write_text(script)

    def config(self, **options: str) -> Config:
        """Return Alembic's configuration with these options."""
        config = Config()
        config.set_main_option("script_location", str(self.folder))
        config.set_main_option("sqlalchemy.url", self.address.replace("%", "%%"))
        for name, value in options.items():
            config.set_main_option(name, value)
        return config

    def ini(self, **options: str) -> Path:
        """Return an ``alembic.ini`` with these options."""
        path = self.folder / "alembic.ini"
        with path.open("w") as file:
            self.config(**options).file_config.write(file)
        return path

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        """Return an engine for the test's own questions."""
        engine = create_engine(self.address, isolation_level="AUTOCOMMIT")
        try:
            yield engine
        finally:
            engine.dispose()

    def rows(self, statement: str, /, **values: Any) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows, if it has any."""
        with self.engine() as engine, engine.connect() as connection:
            result = connection.execute(text(statement), values)
            return [tuple(row) for row in result] if result.returns_rows else []

    def tables(self) -> set[str]:
        """Return the names of all tables."""
        with self.engine() as engine:
            return set(inspect(engine).get_table_names())

    def heads(self) -> list[str]:
        """Return what the version table says."""
        if "alembic_version" not in self.tables():
            return []
        return sorted(str(name) for (name,) in self.rows("select version_num from alembic_version"))

    def logged(self) -> list[str]:
        """Return the revisions that noted that they ran, each as often as it ran."""
        return sorted(str(name) for (name,) in self.rows("select revision from migration_log"))

    def upgrade(self, revision: str = "heads", **options: str) -> None:
        """Upgrade with Alembic alone."""
        command.upgrade(self.config(**options), revision)


@contextmanager
def application(server: str, folder: Path) -> Iterator[Application]:
    """Return an application without revisions, on a new database."""
    with ExitStack() as stack:
        url = make_url(f"sqlite:///{folder}/app.sqlite3")
        if server != "sqlite":
            url = stack.enter_context(fresh_database(require_server(server)))
            url = url_for(url, DRIVERS[server])
        application = Application(folder, _whole(url))
        application.write()
        yield application


def _whole(url: URL) -> str:
    return url.render_as_string(hide_password=False)


def apply(
    application: Application,
    *,
    wait: float | None = 30,
    ttl: float = TTL,
    options: Mapping[str, str] | None = None,
) -> MigrationResult:
    """Do what ``apply_migrations`` does, with another ttl, and with options that ``env.py`` knows."""
    return run(application.config(**(options or {})), "heads", wish(DEFAULT_KEY, ttl, wait))


def apply_and_tell(
    application: Application, *, ttl: float = TTL, options: Mapping[str, str] | None = None
) -> tuple[int, MigrationResult, list[str]]:
    """Return the process id, the result and what was logged; a job for another process."""
    with logged(lambda _: (application.folder / "waiting").touch()) as messages:
        return os.getpid(), apply(application, ttl=ttl, options=options), messages


@contextmanager
def logged(on_wait: Callable[[str], object]) -> Iterator[list[str]]:
    """Collect what is logged of the guard, and call a function when somebody waits."""
    messages: list[str] = []

    class Collecting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())
            if record.getMessage().startswith("waiting"):
                on_wait(record.getMessage())

    handler, logger = Collecting(logging.INFO), logging.getLogger("alembic.sqllocks")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield messages
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)


def load() -> None:
    """Load what a migrator needs; a job that lets several begin at the same moment."""
    with contextlib.suppress(ImportError):
        import alembic.command  # noqa: F401
