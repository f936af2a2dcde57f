"""Give each case the backends, drivers and forms that it names by its arguments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.conformance.crowd import Crowd, beside
from tests.conformance.kinds import GROUPS, Kind, kinds_of
from tests.conformance.places import Places
from tests.conformance.processes import ProcessPool
from tests.conformance.subject import Subject


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a case over the kinds of its subject argument."""
    # every other group builds on `subject`, so the narrower one decides
    named = [group for group in GROUPS if group in metafunc.fixturenames]
    if named:
        kinds = kinds_of(named, metafunc.module.__name__)
        metafunc.parametrize("kind", kinds, ids=[kind.name for kind in kinds])


@pytest.fixture(scope="session")
def places() -> Iterator[Places]:
    """Return the databases of this test process."""
    made = Places()
    yield made
    made.close()


@pytest.fixture(scope="session")
def processes(places: Places) -> Iterator[ProcessPool]:
    """Return processes that can be told to race."""
    with ProcessPool() as pool:
        yield pool


@pytest.fixture
def subject(request: pytest.FixtureRequest, kind: Kind, places: Places) -> Iterator[Subject]:
    """Return one backend × driver × form."""
    with ExitStack() as stack:
        subject = Subject(places.of(kind), stack)
        callers = beside(request.module.__name__)
        if callers and kind.table:
            stack.enter_context(Crowd(subject.a, callers))
        yield subject


@pytest.fixture
def table_subject(subject: Subject) -> Subject:
    """Return a subject whose locks are rows."""
    return subject


@pytest.fixture
def network_subject(subject: Subject) -> Subject:
    """Return a subject on a server with row locks."""
    return subject


@pytest.fixture
def mysql_subject(subject: Subject) -> Subject:
    """Return a subject on MySQL or MariaDB."""
    return subject


@pytest.fixture
def sqlite_subject(subject: Subject) -> Subject:
    """Return a subject on a SQLite file."""
    return subject


@pytest.fixture
def crowded_subject(subject: Subject) -> Subject:
    """Return a subject that some cases run on with a crowd beside them."""
    return subject


@pytest.fixture
def memory_subject(subject: Subject) -> Subject:
    """Return a subject without a database."""
    return subject


@pytest.fixture
def asyncio_subject(subject: Subject) -> Subject:
    """Return a subject of the asyncio form."""
    return subject


@pytest.fixture
def asyncio_table_subject(subject: Subject) -> Subject:
    """Return a subject of the asyncio form whose locks are rows."""
    return subject


@pytest.fixture
def blocking_table_subject(subject: Subject) -> Subject:
    """Return a subject of the blocking form whose locks are rows."""
    return subject
