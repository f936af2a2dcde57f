"""Give each case the backends, drivers and forms that it names by its argument.

subject             everything but SQLite: memory, and every driver of every server in its form
driver_subject      the same without memory
form_subject        one driver for each form of each server, two of PostgreSQL's for asyncio
server_subject      one driver for each server: what the server or the SQL decides
blocking_subject, asyncio_subject, postgresql_subject, mysql_subject, sqlite_subject, memory_subject
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.conformance.conftest import places
from tests.conformance.kinds import Kind
from tests.conformance.places import Places
from tests.locks.kinds import GROUPS, kinds_of
from tests.locks.processes import Pool
from tests.locks.subject import LockSubject

__all__ = ["places"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a case over the kinds of its subject argument."""
    named = [name for name in GROUPS if name in metafunc.fixturenames and name != "subject"]
    if not named and "subject" in metafunc.fixturenames:
        named = ["subject"]
    if named:
        kinds = kinds_of(named[0])
        metafunc.parametrize("kind", kinds, ids=[kind.name for kind in kinds])


@pytest.fixture(scope="session")
def lockers(places: Places) -> Iterator[dict[Any, list[Any]]]:
    """Return the two lockers of each kind that its cases share."""
    made: dict[Any, list[Any]] = {}
    yield made
    for kind, several in made.items():
        with ExitStack() as stack:
            subject = LockSubject(places.of(kind), stack, made)
            for locker in several:
                subject.close(locker)


@pytest.fixture(scope="session")
def processes() -> Iterator[Pool]:
    """Return processes that use lockers and electors of their own."""
    with Pool() as pool:
        yield pool


@pytest.fixture
def subject(kind: Kind, places: Places, lockers: dict[Any, list[Any]]) -> Iterator[LockSubject]:
    """Return one backend × driver × form."""
    with ExitStack() as stack:
        yield LockSubject(places.of(kind), stack, lockers)


def _same(subject: LockSubject) -> LockSubject:
    return subject


memory_subject = pytest.fixture(name="memory_subject")(_same)
driver_subject = pytest.fixture(name="driver_subject")(_same)
form_subject = pytest.fixture(name="form_subject")(_same)
server_subject = pytest.fixture(name="server_subject")(_same)
blocking_subject = pytest.fixture(name="blocking_subject")(_same)
asyncio_subject = pytest.fixture(name="asyncio_subject")(_same)
postgresql_subject = pytest.fixture(name="postgresql_subject")(_same)
mysql_subject = pytest.fixture(name="mysql_subject")(_same)
sqlite_subject = pytest.fixture(name="sqlite_subject")(_same)
