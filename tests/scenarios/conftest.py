"""The database of a scenario."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.conformance.kinds import Kind
from tests.scenarios.arena import Arena
from tests.servers import require_server
from tests.waiting.settings import Databases, Setting


@pytest.fixture(scope="module")
def arenas() -> Iterator[dict[str, Arena]]:
    """Return the databases of this module, one for each server that a test asked for."""
    with ExitStack() as stack:
        yield _Arenas(stack)


class _Arenas(dict[str, Arena]):
    def __init__(self, stack: ExitStack) -> None:
        super().__init__()
        self._stack = stack

    def __missing__(self, server: str) -> Arena:
        arena = self[server] = Arena(server, server, self._stack)
        return arena


@pytest.fixture
def server(kind: Kind) -> str:
    """Return where a test takes place that is given one driver and form at a time."""
    return kind.server


@pytest.fixture
def arena(server: str, arenas: dict[str, Arena]) -> Iterator[Arena]:
    """Return the database of the test's ``server`` or ``kind``; nothing may be left in it at the end."""
    require_server(server)
    arena = arenas[server]
    try:
        yield arena
        arena.check_quiet()
    finally:
        arena.calm()
        # what a failed test left must not fail the next one
        arena.observer.rows("DELETE FROM core_locks")


@pytest.fixture(scope="session")
def databases() -> Iterator[Databases]:
    """Return the databases of settings in this test process."""
    with ExitStack() as stack:
        yield Databases(stack)


@pytest.fixture
def setting(kind: Kind, databases: Databases) -> Iterator[Setting]:
    """Return where a test of waiting takes place, for the test's ``kind``."""
    with ExitStack() as stack:
        yield Setting(kind, databases.of(kind), stack)
