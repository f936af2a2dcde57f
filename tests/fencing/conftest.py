"""The backends, drivers and forms of the conformance suite, and transactions of the application on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.conformance.conftest import (
    asyncio_subject,
    blocking_table_subject,
    memory_subject,
    mysql_subject,
    network_subject,
    places,
    processes,
    pytest_generate_tests,
    sqlite_subject,
    subject,
    table_subject,
)
from tests.conformance.subject import Subject
from tests.fencing.application import Application

__all__ = [
    "application",
    "asyncio_subject",
    "blocking_table_subject",
    "memory_subject",
    "mysql_subject",
    "network_subject",
    "places",
    "processes",
    "pytest_generate_tests",
    "sqlite_subject",
    "subject",
    "table_subject",
]


@pytest.fixture
def application(subject: Subject) -> Iterator[Application]:
    """Return the application whose transactions are guarded."""
    with ExitStack() as stack:
        yield Application(subject, stack)
