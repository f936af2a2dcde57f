"""Applications with a history of their own, and processes that migrate them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.migrations.application import SERVERS, Application, application, load
from tests.scenarios.workers import Worker, end


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> str:
    """Return where a test takes place; a test with fewer servers says so itself."""
    return str(request.param)


@pytest.fixture
def app(server: str, tmp_path: Path) -> Iterator[Application]:
    """Return an application without revisions, on a new database of the server."""
    with application(server, tmp_path) as made:
        yield made


@pytest.fixture
def workers() -> Iterator[Callable[[int], list[Worker]]]:
    """Return a function that starts other processes, ready to migrate."""
    started: list[Worker] = []

    def start(count: int) -> list[Worker]:
        new = [Worker() for _ in range(count)]
        started.extend(new)
        for pending in [worker.start(load) for worker in new]:
            pending.result()
        return new

    yield start
    end(started)
