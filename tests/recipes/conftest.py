"""The database of a recipe's test, as scenarios have it, with the tables of the application in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.recipes import tables
from tests.scenarios.arena import Arena
from tests.scenarios.conftest import arena, arenas, server

__all__ = ["anyio_backend", "arena", "arenas", "place", "prepared", "server"]


@pytest.fixture
def place(arena: Arena, prepared: set[str]) -> Iterator[Arena]:
    """Return the test's database with empty tables of the application."""
    if str(arena.url) not in prepared:
        tables.metadata.create_all(arena.observer.engine)
        prepared.add(str(arena.url))
    yield arena
    tables.close_all()
    # to make them anew takes a second on some servers
    for table in tables.metadata.sorted_tables:
        arena.observer.rows(f"DELETE FROM {table.name}")


@pytest.fixture(scope="module")
def prepared() -> set[str]:
    """Return the databases that have the tables."""
    return set()


@pytest.fixture
def anyio_backend() -> str:
    """Run coroutine functions on asyncio."""
    return "asyncio"
