"""How a server is asked who it is and told to make databases, through the plainest driver."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

from sqlalchemy import URL, make_url

from tests.servers.base import Unavailable

TIMEOUT = 5
PACKAGES = {"postgresql": "psycopg", "mysql": "pymysql"}


class NotYet(Exception):
    """The server does not answer yet."""


def need_client(scheme: str) -> None:
    """Raise Unavailable where the driver that asks servers of this scheme is not installed."""
    package = PACKAGES[scheme]
    if importlib.util.find_spec(package) is None:
        raise Unavailable(f"the package {package} is not installed")


def identity(url: str) -> tuple[str, str]:
    """Return a server's version and data directory; raise NotYet if it does not answer."""
    scheme = make_url(url).get_backend_name()
    if scheme == "postgresql":
        query = "SELECT current_setting('server_version'), current_setting('data_directory', true)"
        ((version, directory),) = execute(url, query)
        return str(version).split(" ", 1)[0], str(directory)
    ((version, directory),) = execute(url, "SELECT version(), @@datadir")
    return str(version), str(directory)


def execute(url: str, *statements: str) -> Sequence[Sequence[Any]]:
    """Run statements outside any transaction; return the rows of the last one."""
    target = make_url(url)
    if target.get_backend_name() == "postgresql":
        return _execute_postgresql(url, statements)
    return _execute_mysql(target, statements)


def _execute_postgresql(url: str, statements: Sequence[str]) -> Sequence[Sequence[Any]]:
    import psycopg

    try:
        with psycopg.connect(url, connect_timeout=TIMEOUT, autocommit=True) as connection:
            # text protocol: the console of PgBouncer knows no other
            cursor = psycopg.ClientCursor(connection)
            for statement in statements:
                cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []
    except psycopg.OperationalError as error:
        raise NotYet(str(error)) from error


def _execute_mysql(target: URL, statements: Sequence[str]) -> Sequence[Sequence[Any]]:
    import pymysql

    try:
        connection = pymysql.connect(
            host=target.host,
            port=target.port or 3306,
            user=target.username,
            password=str(target.password or ""),
            database=target.database,
            connect_timeout=TIMEOUT,
            autocommit=True,
        )
        with connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())
    except (pymysql.err.OperationalError, pymysql.err.InterfaceError, OSError) as error:
        raise NotYet(str(error)) from error


def checked_kind(name: str, version: str) -> str:
    """Return the version of a MySQL or MariaDB, or raise Unavailable if it is the other's."""
    told = "mariadb" if "mariadb" in version.lower() else "mysql"
    if told != name:
        raise Unavailable(f"this is {told} ({version}), not {name}")
    return version
