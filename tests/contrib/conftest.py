"""Databases of a test's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import URL

from tests.servers import fresh_database, require_server


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> Iterator[URL]:
    """Return the driverless URL of a new database on each of the servers that examples are written for."""
    require_server(request.param)
    with fresh_database(request.param) as url:
        yield url


@pytest.fixture
def anyio_backend() -> str:
    """Run coroutine functions on asyncio."""
    return "asyncio"
