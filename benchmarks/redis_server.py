"""A Redis of its own: out of Debian's package, on its own port, gone afterwards."""

from __future__ import annotations

import shutil
import signal
import socket
from pathlib import Path

from tests.servers import LocalServer, Unavailable, apt
from tests.servers.accounts import unprivileged
from tests.servers.base import Options
from tests.servers.clients import NotYet

PACKAGE = "redis-server"


class Redis(LocalServer):
    """Redis with its defaults, which do not wait for the disk, but without snapshots."""

    name = "redis"
    scheme = "redis"
    end_signal = signal.SIGTERM

    @property
    def url(self) -> str:
        """Return the URL of database 0."""
        return f"redis://127.0.0.1:{self.port}/0"

    def _initialise(self) -> None:
        pass

    def _command(self) -> list[str | Path]:
        program = shutil.which(PACKAGE)
        assert program is not None
        return [
            program,
            "--bind",
            "127.0.0.1",
            "--port",
            str(self.port),
            "--save",
            "",
            "--dir",
            self.directory,
        ]

    def _ask(self) -> str:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.sendall(b"INFO server\r\n")
                told = connection.recv(1 << 16).decode()
        except OSError as error:
            raise NotYet(str(error)) from error
        said = dict(line.split(":", 1) for line in told.splitlines() if ":" in line)
        if "redis_version" not in said:
            raise NotYet(told)
        if said["process_id"] != str(self.pid):
            raise Unavailable(f"another server answers on port {self.port}")
        return said["redis_version"]


def start_redis() -> Redis:
    """Start a Redis, installing it where it is missing; raise Unavailable if it cannot be had."""
    if shutil.which(PACKAGE) is None:
        apt.install([PACKAGE])
    server = Redis(source="apt", account=unprivileged(), options=Options())
    server.create()
    return server
