"""Servers that need no starting: those that the environment names, and SQLite."""

from __future__ import annotations

import atexit
import sqlite3

from tests.servers import clients
from tests.servers.accounts import temporary_directory
from tests.servers.base import Options, Server, Unavailable
from tests.servers.process import guard, remove
from tests.servers.urls import driverless


class ExternalServer(Server):
    """Somebody else's server: used, never started or ended."""

    source = "env"

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self._url = driverless(url).render_as_string(hide_password=False)
        if name == "sqlite":
            self.version = sqlite3.sqlite_version
            return
        try:
            self.version, _ = clients.identity(self._url)
        except clients.NotYet as error:
            raise Unavailable(f"does not answer: {error}") from error
        if name in {"mysql", "mariadb"}:
            clients.checked_kind(name, self.version)

    @property
    def url(self) -> str:
        """Return the URL of the test database, without a driver."""
        return self._url

    def start(self) -> None:
        """Refuse: raises RuntimeError."""
        raise RuntimeError(f"the {self.name} of the environment is not ours to start or end")

    def stop(self) -> None:
        """Refuse: raises RuntimeError."""
        self.start()

    def kill(self) -> None:
        """Refuse: raises RuntimeError."""
        self.start()

    def close(self) -> None:
        """Do nothing: the server stays."""


class SQLite(Server):
    """A file in a directory of its own; there is nothing to start or end."""

    name = "sqlite"
    source = "library"
    version = sqlite3.sqlite_version

    def __init__(self) -> None:
        self.directory = temporary_directory(None)
        guard.tell(f"directory {self.directory}")
        atexit.register(self.close)

    @property
    def url(self) -> str:
        """Return the URL of the file."""
        return f"sqlite:///{self.directory / 'sqllocks.sqlite3'}"

    @property
    def admin_url(self) -> str:
        """Return the same URL: a file is its own administrator."""
        return self.url

    def start(self) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""

    def kill(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Remove the file; a second call does nothing."""
        atexit.unregister(self.close)
        if self.directory.exists():
            remove(self.directory)


def sqlite(_options: Options) -> SQLite:
    """Return a SQLite file of its own."""
    return SQLite()
