"""The database of a recipe's test, as scenarios have it, with the tables of the application in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.recipes import tables
from tests.scenarios.arena import Arena
from tests.scenarios.conftest import arena, arenas, server

__all__ = ["anyio_backend", "arena", "arenas", "place", "server"]


@pytest.fixture
def place(arena: Arena) -> Iterator[Arena]:
    """Return the test's database with empty tables of the application."""
    engine = arena.observer.engine
    tables.metadata.drop_all(engine)
    tables.metadata.create_all(engine)
    yield arena
    tables.close_all()


@pytest.fixture
def anyio_backend() -> str:
    """Run coroutine functions on asyncio."""
    return "asyncio"
