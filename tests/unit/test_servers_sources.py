"""Where the servers of the tests come from, and what is said when they do not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers import (
    Missing,
    Server,
    Unavailable,
    apt,
    containers,
    launch,
    provide,
    require_server,
    variable,
)
from tests.servers.clients import NotYet, execute
from tests.servers.waiting import gone

LOCAL = ("binaries", "wheel", "apt")


def test_the_environment_comes_first_and_is_left_running(monkeypatch: pytest.MonkeyPatch) -> None:
    url = require_server("postgresql")
    monkeypatch.setenv(variable("postgresql"), url.replace("postgresql://", "postgresql+psycopg://"))
    server = provide(["postgresql"])["postgresql"]
    assert isinstance(server, Server)
    assert (server.source, server.url) == ("env", url)
    for forbidden in (server.stop, server.kill, server.start):
        with pytest.raises(RuntimeError, match="not ours"):
            forbidden()
    server.close()
    assert execute(url, "SELECT 1")


def test_a_server_of_the_other_kind_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable("mariadb"), require_server("mysql"))
    server = provide(["mariadb"])["mariadb"]
    assert isinstance(server, Missing)
    assert "this is mysql" in server.reason


@pytest.mark.parametrize("name", ["postgresql", "mysql"])
def test_a_silent_server_of_the_environment_is_missing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable(name), f"{name}://nobody:x@127.0.0.1:1/none")
    server = provide([name])[name]
    assert isinstance(server, Missing)
    assert "does not answer" in server.reason
    assert variable(name) in server.reason


def test_what_no_source_gives_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("postgresql", "mysql", "mariadb", "pgbouncer"):
        monkeypatch.delenv(variable(name), raising=False)
    monkeypatch.setenv("SQLLOCKS_SERVER_SOURCES", "nowhere")
    found = provide(["postgresql", "mysql", "mariadb", "pgbouncer", "sqlite"])
    for name in ("postgresql", "mysql", "mariadb"):
        assert found[name] == Missing(name, "no source is allowed")
    pooler, file = found["pgbouncer"], found["sqlite"]
    assert isinstance(pooler, Missing)
    assert "no PostgreSQL" in pooler.reason
    assert isinstance(file, Server)
    file.close()


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match="oracle"):
        provide(["oracle"])


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Point the Docker client at a socket that nobody listens on."""
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(containers, "SOCKET", tmp_path / "docker.sock")
    containers.why_no_engine.cache_clear()
    yield tmp_path
    containers.why_no_engine.cache_clear()


@pytest.mark.parametrize("host", [None, "unix://{}/docker.sock", "tcp://127.0.0.1:1"])
def test_without_an_engine_docker_says_so_at_once(
    host: str | None, no_engine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("testcontainers")
    if host is not None:
        monkeypatch.setenv("DOCKER_HOST", host.format(no_engine))
    before = time.monotonic()
    with pytest.raises(Unavailable, match="no Docker engine"):
        launch("postgresql", sources=["docker"])
    assert time.monotonic() - before < 10


@pytest.mark.parametrize("decided", [True, False])
def test_installing_starts_no_service(decided: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = tmp_path / "policy-rc.d"
    monkeypatch.setattr(apt, "POLICY", policy)
    if decided:
        policy.write_text("the owner's")
    with apt.no_services():
        assert policy.read_text() == ("the owner's" if decided else "#!/bin/sh\nexit 101\n")
    assert policy.exists() is decided


class FakeContainer:
    """Answers as testcontainers does, with a local server in the place of the container."""

    def __init__(self, image: str) -> None:
        self.image = image
        self.environment: dict[str, str] = {}
        self.command: list[str] = []
        self.server: Any = None

    def with_bind_ports(self, container: int, host: int) -> FakeContainer:
        assert (container, host > 0) == (5432, True)
        return self

    def with_env(self, name: str, value: str) -> None:
        self.environment[name] = value

    def with_command(self, command: list[str]) -> None:
        self.command = command

    def start(self) -> None:
        self.server = launch("postgresql", sources=LOCAL)

    def get_container_host_ip(self) -> str:
        return "localhost"

    def get_exposed_port(self, _port: int) -> int:
        return int(self.server.port)

    def get_wrapped_container(self) -> Any:
        return self.server

    def stop(self) -> None:
        if self.server is not None:
            self.server.close()


def test_a_container_is_started_asked_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    module = pytest.importorskip("testcontainers.core.container")
    require_server("postgresql")
    monkeypatch.setattr(module, "DockerContainer", FakeContainer)
    monkeypatch.setattr(containers, "need_engine", lambda: None)
    with launch("postgresql", settings={"max_connections": "30"}, sources=["docker"]) as server:
        assert isinstance(server, containers.ContainerServer)
        fake: Any = server.container
        assert server.source == "docker"
        assert fake.environment["POSTGRES_USER"] == "sqllocks"
        assert "max_connections=30" in fake.command
        assert "fsync=off" in fake.command
        for end in (server.stop, server.kill):
            end()
            with pytest.raises(NotYet):
                execute(server.url, "SELECT 1")
            server.start()
            assert execute(server.url, "SELECT 1")
        pid = fake.server.pid
    assert gone(pid)
