"""What a server of the tests is, wherever it came from."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from sqlalchemy import URL, make_url

NAMES = ("postgresql", "mysql", "mariadb", "pgbouncer", "sqlite")
# started when a test first asks for them, because they take seconds and few tests need them
ON_DEMAND = ("pgbouncer-session", "standby", "galera")
USER = "sqllocks"
PASSWORD = "secret"
DATABASE = "sqllocks"


class Unavailable(Exception):
    """A server cannot be had from a source; the text says why."""


@dataclass(frozen=True)
class Missing:
    """A server that no source could give, with every source's reason."""

    name: str
    reason: str


@dataclass(frozen=True)
class Options:
    """How a server is to be started."""

    durable: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    upstream: str | None = None  # the PostgreSQL behind a PgBouncer


class Server(ABC):
    """A running database server; as a context manager it is closed at the end."""

    name: str
    source: str
    version: str = ""

    @property
    @abstractmethod
    def url(self) -> str:
        """Return the URL of the test database, without a driver."""

    @property
    def urls(self) -> tuple[str, ...]:
        """Return the URL of each server, where this is a group of several."""
        return (self.url,)

    @property
    def admin_url(self) -> str:
        """Return the URL of a database that is always there, for one who may create others."""
        return on_database(self.url, "mysql" if self.url.startswith("mysql") else "postgres")

    @abstractmethod
    def start(self) -> None:
        """Start again after `stop` or `kill`, on the same port and data; return once it answers."""

    @abstractmethod
    def stop(self) -> None:
        """Shut down in order; data and port are kept."""

    @abstractmethod
    def kill(self) -> None:
        """End at once, as a crash would; data and port are kept."""

    def restart(self, *, down: float = 0.0, crash: bool = False) -> None:
        """Stop, or crash, and start again after `down` seconds; return once it answers."""
        (self.kill if crash else self.stop)()
        time.sleep(down)
        self.start()

    @abstractmethod
    def close(self) -> None:
        """End the server and remove its data; a second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def server_url(scheme: str, port: int, database: str = DATABASE, host: str = "127.0.0.1") -> str:
    """Return the driverless URL of the test user on a port."""
    url = URL.create(scheme, USER, PASSWORD, host, port, database)
    return url.render_as_string(hide_password=False)


def on_database(url: str | URL, database: str) -> str:
    """Return the same URL for another database."""
    return make_url(url).set(database=database).render_as_string(hide_password=False)
