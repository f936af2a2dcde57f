"""Servers in Docker containers, through testcontainers."""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib.util
import json
import os
import socket
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import make_url

from tests.servers import clients
from tests.servers.base import DATABASE, PASSWORD, USER, Options, Server, Unavailable, server_url
from tests.servers.process import free_port

IMAGES = {"postgresql": "postgres:17", "mysql": "mysql:8.4", "mariadb": "mariadb:11.4"}
PORTS = {"postgresql": 5432, "mysql": 3306, "mariadb": 3306}
SOCKET = Path("/var/run/docker.sock")
ENGINE_TIMEOUT = 3
START_LIMIT = 120.0

_lock = threading.Lock()


class ContainerServer(Server):
    """A server in a container of its own, on a fixed port of the host so that a restart keeps it."""

    source = "docker"

    def __init__(self, name: str, options: Options) -> None:
        from testcontainers.core.container import DockerContainer

        self.name = name
        image = os.environ.get(f"SQLLOCKS_TEST_{name.upper()}_IMAGE", IMAGES[name])
        container = DockerContainer(image).with_bind_ports(PORTS[name], free_port())
        for variable, value in _environment(name).items():
            container.with_env(variable, value)
        container.with_command(_command(name, options))
        self.container = container
        self._url = ""
        self._closed = False
        atexit.register(self.close)

    def create(self) -> None:
        """Pull, start and wait; leave nothing behind on failure."""
        try:
            with _library():
                self._run()
            self._wait()
            if self.name != "postgresql":
                root = make_url(self.admin_url).set(username="root")
                grant = f"GRANT ALL PRIVILEGES ON *.* TO '{USER}'@'%' WITH GRANT OPTION"
                clients.execute(root.render_as_string(hide_password=False), grant)
        except BaseException:
            self.close()
            raise

    def _run(self) -> None:
        self.container.start()
        host = self.container.get_container_host_ip()
        port = self.container.get_exposed_port(PORTS[self.name])
        scheme = "postgresql" if self.name == "postgresql" else "mysql"
        self._url = server_url(scheme, port, host="127.0.0.1" if host == "localhost" else host)

    def _wait(self) -> None:
        deadline = time.monotonic() + START_LIMIT
        while True:
            try:
                self.version, _ = clients.identity(self._url)
            except clients.NotYet as error:
                if time.monotonic() > deadline:
                    raise Unavailable(f"no answer within {START_LIMIT:.0f} s: {error}") from error
                time.sleep(0.1)
            else:
                break
        if self.name != "postgresql":
            clients.checked_kind(self.name, self.version)

    @property
    def url(self) -> str:
        """Return the URL of the test database, without a driver."""
        return self._url

    def start(self) -> None:
        """Start again after `stop` or `kill`, on the same port and data; return once it answers."""
        self.container.get_wrapped_container().start()
        self._wait()

    def stop(self) -> None:
        """Shut down in order; data and port are kept."""
        self.container.get_wrapped_container().stop()

    def kill(self) -> None:
        """End at once, as a crash would; data and port are kept."""
        self.container.get_wrapped_container().kill()

    def close(self) -> None:
        """Remove the container; a second call does nothing."""
        atexit.unregister(self.close)
        if not self._closed:
            self._closed = True
            self.container.stop()


def _environment(name: str) -> dict[str, str]:
    if name == "postgresql":
        return {"POSTGRES_USER": USER, "POSTGRES_PASSWORD": PASSWORD, "POSTGRES_DB": DATABASE}
    prefix = name.upper()
    return {
        f"{prefix}_ROOT_PASSWORD": PASSWORD,
        f"{prefix}_USER": USER,
        f"{prefix}_PASSWORD": PASSWORD,
        f"{prefix}_DATABASE": DATABASE,
    }


def _command(name: str, options: Options) -> list[str]:
    from tests.servers import mysql, postgresql

    if name == "postgresql":
        settings = {**postgresql.settings(options), "listen_addresses": "*", **options.settings}
        return ["postgres", *(word for pair in settings.items() for word in ("-c", "=".join(pair)))]
    kind = mysql.MySQL if name == "mysql" else mysql.MariaDB
    settings = {**kind.server_settings(options), "bind-address": "0.0.0.0", **options.settings}
    return [f"--{setting}={value}" for setting, value in settings.items()]


def start_postgresql(options: Options) -> Server:
    """Start PostgreSQL in a container; raise Unavailable where no engine answers."""
    return _start("postgresql", options)


def start_mysql(options: Options) -> Server:
    """Start MySQL in a container; raise Unavailable where no engine answers."""
    return _start("mysql", options)


def start_mariadb(options: Options) -> Server:
    """Start MariaDB in a container; raise Unavailable where no engine answers."""
    return _start("mariadb", options)


def _start(name: str, options: Options) -> Server:
    need_engine()
    clients.need_client("postgresql" if name == "postgresql" else "mysql")
    try:
        with _library():
            server = ContainerServer(name, options)
        server.create()
    except Unavailable:
        raise
    except Exception as error:
        # the engine's refusals come as many types: no such image, no network, no room
        raise Unavailable(f"the container did not start: {error}") from error
    return server


def need_engine() -> None:
    """Raise Unavailable, within seconds, unless a Docker engine answers."""
    with _library():
        reason = why_no_engine()
    if reason:
        raise Unavailable(reason)


@functools.cache
def why_no_engine() -> str:
    """Return the reason, or "" if an engine answers; asked once a run."""
    if importlib.util.find_spec("testcontainers") is None:
        return "the package testcontainers is not installed"
    if not _configured() and not _listens(SOCKET):
        return "no Docker engine"  # told without the second that importing the client takes
    reason = _ask_engine()
    if reason:
        # the client leaves its sockets to the collector, whose warnings would fail a test later
        gc.collect()
    return reason


def _ask_engine() -> str:
    from testcontainers.core.docker_client import DockerClient

    client: Any = None
    try:
        client = DockerClient(timeout=ENGINE_TIMEOUT).client
        client.ping()
    except Exception as error:
        # requests, urllib3, docker and paramiko each have their own
        return f"no Docker engine: {error}"
    finally:
        if client is not None:
            client.close()
    return ""


def _configured() -> bool:
    """Tell whether the user points the Docker client elsewhere than at the usual socket."""
    if os.environ.get("DOCKER_HOST") or os.environ.get("DOCKER_CONTEXT"):
        return True
    if (Path.home() / ".testcontainers.properties").exists():
        return True
    configuration = Path(os.environ.get("DOCKER_CONFIG", Path.home() / ".docker")) / "config.json"
    try:
        context = json.loads(configuration.read_text()).get("currentContext", "default")
    except (OSError, ValueError):
        return False
    return bool(context != "default")


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(ENGINE_TIMEOUT)
        return probe.connect_ex(str(path)) == 0


@contextlib.contextmanager
def _library() -> Iterator[None]:
    """Keep the client libraries' warnings to themselves; one thread at a time, for filters are global."""
    with _lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
