"""URLs for the drivers under test, and databases of a test's own."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import URL, make_url

from tests.servers import clients
from tests.servers.base import NAMES, Server, on_database

DRIVERS = {
    "psycopg": "postgresql",
    "asyncpg": "postgresql",
    "psycopg2": "postgresql",
    "pg8000": "postgresql",
    "pymysql": "mysql",
    "aiomysql": "mysql",
    "mysqldb": "mysql",
    "asyncmy": "mysql",
    "pysqlite": "sqlite",
    "aiosqlite": "sqlite",
}


def variable(name: str) -> str:
    """Return the environment variable that holds the URL of a server."""
    return f"SQLLOCKS_TEST_{name.upper().replace('-', '_')}_URL"


def driverless(server: Server | URL | str) -> URL:
    """Return the URL of a server, given as itself, as its URL or as the name of a shared one."""
    if isinstance(server, Server):
        server = server.url
    elif isinstance(server, str) and server in NAMES:
        server = os.environ[variable(server)]
    url = make_url(server)
    backend = url.get_backend_name()
    return url.set(drivername="mysql" if backend == "mariadb" else backend)


def url_for(server: Server | URL | str, driver: str) -> URL:
    """Return the URL of a server for one of DRIVERS.

    The server may be a Server, a URL or the name of a shared one. Raises ValueError if the driver
    does not speak to that server, KeyError if the shared server is missing.
    """
    url = driverless(server)
    scheme = DRIVERS[driver]
    if url.drivername != scheme:
        raise ValueError(f"{driver} does not speak to {url.drivername}")
    return url.set(drivername=f"{scheme}+{driver}")


@contextlib.contextmanager
def fresh_database(server: Server | URL | str) -> Iterator[URL]:
    """Create a database, give its driverless URL, and drop it with whoever is still connected."""
    url = driverless(server)
    name = f"sqllocks_{uuid.uuid4().hex[:16]}"
    if url.drivername == "sqlite":
        with _fresh_file(name) as path:
            yield URL.create("sqlite", database=str(path))
        return
    postgresql = url.drivername == "postgresql"
    admin = on_database(url, "postgres" if postgresql else "mysql")
    clients.execute(admin, f"CREATE DATABASE {name}")
    try:
        yield url.set(database=name)
    finally:
        # a test may have ended the server
        with contextlib.suppress(clients.NotYet):
            (_drop_postgresql if postgresql else _drop_mysql)(admin, name)


def _drop_postgresql(admin: str, name: str) -> None:
    clients.execute(admin, f"DROP DATABASE {name} WITH (FORCE)")


def _drop_mysql(admin: str, name: str) -> None:
    # an open transaction would hold the drop up for as long as it lasts
    query = f"SELECT id FROM information_schema.processlist WHERE db = '{name}'"
    for (connection,) in clients.execute(admin, query):
        with contextlib.suppress(clients.NotYet):  # it may have left by itself
            clients.execute(admin, f"KILL {connection}")
    clients.execute(admin, f"DROP DATABASE {name}")


@contextlib.contextmanager
def _fresh_file(name: str) -> Iterator[Path]:
    directory = tempfile.mkdtemp(prefix="sqllocks-")
    try:
        yield Path(directory) / f"{name}.sqlite3"
    finally:
        shutil.rmtree(directory, ignore_errors=True)
