"""How the servers of a run reach its tests: through the environment, which worker processes inherit."""

from __future__ import annotations

import os
from collections.abc import Mapping

from tests.servers.base import Missing, Server
from tests.servers.urls import variable


def missing_variable(name: str) -> str:
    """Return the environment variable that holds why a server is missing."""
    return f"SQLLOCKS_TEST_{name.upper().replace('-', '_')}_MISSING"


def publish(found: Mapping[str, Server | Missing]) -> dict[str, str]:
    """Put URLs and reasons into the environment; return what was added, for `withdraw`."""
    added = {}
    for name, server in found.items():
        if isinstance(server, Missing):
            added[missing_variable(name)] = server.reason
        elif server.source != "env":
            added[variable(name)] = server.url
    os.environ.update(added)
    return added


def withdraw(added: Mapping[str, str]) -> None:
    """Take out of the environment what `publish` put there."""
    for name in added:
        os.environ.pop(name, None)


def require_server(name: str) -> str:
    """Return the driverless URL of a shared server; skip the calling test where it is missing."""
    import pytest

    url = os.environ.get(variable(name))
    if not url:
        reason = os.environ.get(missing_variable(name), "not asked for in this run")
        pytest.skip(f"no {name}: {reason}")
    return url
