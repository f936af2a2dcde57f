"""Locks in a Django project: a provider on its own database settings, and one `migrate` at a time.

    INSTALLED_APPS = ["sqllocks.contrib.django", ...]     # before apps with a `migrate` of their own

    from sqllocks.contrib.django import lock_provider

    with lock_provider().hold("invoice:17", ttl=30):
        ...

The provider opens at most two connections of its own, with the parameters of ``DATABASES``; Django's
connection is never used. So a guard cannot be part of Django's transaction, which SQLAlchemy does not see:
let the row that is written keep the highest ``fencing_token``, and filter by it.
"""

# pyright: basic
# Django has no types

from __future__ import annotations

import threading
from typing import Any

from django.db import connections
from sqlalchemy import URL, Engine, create_engine

from sqllocks.errors import BackendUnsupported
from sqllocks.providers import SqlLockProvider

__all__ = ["engine_for", "lock_provider"]

_DRIVERS = {
    "psycopg": "psycopg",
    "psycopg2": "psycopg2",
    "MySQLdb": "mysqldb",
    "pymysql": "pymysql",
    "sqlite3": "pysqlite",
}
_SCHEMES = {"postgresql": "postgresql", "mysql": "mysql", "sqlite": "sqlite"}
# Django's own classes for rows, types and its pool; the library reads plain values
_OF_DJANGO = ("cursor_factory", "context", "pool", "conv", "detect_types", "init_command", "transaction_mode")

_providers: dict[str, SqlLockProvider] = {}
_making = threading.Lock()


def engine_for(alias: str = "default") -> Engine:
    """Return a new SQLAlchemy engine with the connection parameters that Django uses for an alias.

    Raises ``BackendUnsupported`` for a backend that is none of PostgreSQL, MySQL, MariaDB and SQLite.
    """
    wrapper: Any = connections[alias]
    driver = _DRIVERS.get(wrapper.Database.__name__.partition(".")[0])
    scheme = _SCHEMES.get(wrapper.vendor)
    if driver is None or scheme is None:
        raise BackendUnsupported(
            f"the database {alias!r} is {wrapper.vendor} by {wrapper.Database.__name__}; locks need "
            "PostgreSQL, MySQL, MariaDB or SQLite"
        )
    settings = wrapper.settings_dict

    def connect() -> Any:
        parameters = wrapper.get_connection_params()
        return wrapper.Database.connect(**{k: v for k, v in parameters.items() if k not in _OF_DJANGO})

    url = URL.create(
        f"{scheme}+{driver}",
        username=settings["USER"] or None,
        host=settings["HOST"] or None,
        port=int(settings["PORT"]) if settings["PORT"] else None,
        database=str(settings["NAME"]) if settings["NAME"] else None,
    )
    return create_engine(url, creator=connect)


def lock_provider(alias: str = "default") -> SqlLockProvider:
    """Return the process's provider for one of ``DATABASES``, made at the first call.

    Its table is made by ``migrate`` of this package, ``sqllocks init`` or ``create_table()``.
    """
    with _making:
        if alias not in _providers:
            _providers[alias] = SqlLockProvider(engine_for(alias))
        return _providers[alias]
