"""Fixtures for servers that few tests need, started when the first of them asks.

    pgbouncer_session   URL of a PgBouncer that pools by session      shared by the run
    standby             URLs of a primary and of its hot standby      shared: never promote or stop it
    galera              URLs of the three nodes of a Galera cluster   shared: never stop a node
    own_server          own_server("mysql") is this process's own: restart, stop, kill, freeze, thaw
    own_standby         a primary and standby of this test's own: promote, stop, kill, freeze, ...

Those that are missing skip the test, or fail it where SQLLOCKS_REQUIRE lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from tests.servers.base import Unavailable
from tests.servers.launching import launch
from tests.servers.lending import excuse, require_on_demand
from tests.servers.local import LocalServer
from tests.servers.shared import require_server
from tests.servers.standby import Standby

__all__ = [
    "StandbyURLs",
    "galera",
    "own_server",
    "own_servers",
    "own_standby",
    "pgbouncer_session",
    "standby",
]

LOCAL = ("binaries", "wheel", "apt")


class StandbyURLs(NamedTuple):
    """Where the two are."""

    primary: str
    standby: str


@pytest.fixture
def pgbouncer_session() -> str:
    """Return the URL of the PostgreSQL of the run through a PgBouncer that pools by session."""
    return require_on_demand("pgbouncer-session")[0]


@pytest.fixture
def standby() -> StandbyURLs:
    """Return the URLs of a primary, other than that of the run, and of its hot standby."""
    return StandbyURLs(*require_on_demand("standby"))


@pytest.fixture
def galera() -> tuple[str, ...]:
    """Return the URLs of the three nodes of a Galera cluster."""
    return require_on_demand("galera")


@pytest.fixture(scope="session")
def own_servers() -> Iterator[dict[str, LocalServer]]:
    """Keep the servers of `own_server` until this process has run its tests."""
    servers: dict[str, LocalServer] = {}
    yield servers
    for server in servers.values():
        server.close()


@pytest.fixture
def own_server(own_servers: dict[str, LocalServer]) -> Iterator[Callable[[str], LocalServer]]:
    """Return a function that gives this process's own server of a name, to stop, kill and freeze.

    It is started with the first test that wants one; after each test it is made to run again, and its
    databases stay. So a test makes a database of its own there, as elsewhere.
    """

    def give(name: str) -> LocalServer:
        require_server(name)
        if name not in own_servers:
            try:
                server = launch(name, sources=LOCAL)
            except Unavailable as reason:
                excuse(name, reason)
            assert isinstance(server, LocalServer)
            own_servers[name] = server
        return own_servers[name]

    yield give
    for server in own_servers.values():
        server.thaw()
        server.start()


@pytest.fixture
def own_standby() -> Iterator[Standby]:
    """Return a primary and standby of this test's own; it takes some two seconds to make them."""
    require_server("postgresql")
    try:
        server = launch("standby", sources=LOCAL)
    except Unavailable as reason:
        excuse("standby", reason)
    assert isinstance(server, Standby)
    with server:
        yield server
