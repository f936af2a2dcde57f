"""Give each test on a server the drivers and forms that it names by its argument."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.conformance.kinds import KINDS, Kind
from tests.waiting.settings import Databases, Setting

CHOSEN = tuple(
    kind
    for kind in KINDS
    if kind.name in {"postgresql-asyncpg-asyncio", "postgresql-psycopg-blocking", "mysql-pymysql-blocking"}
)
GROUPS = {
    "setting": (*CHOSEN, *(kind for kind in KINDS if kind.server == "sqlite")),
    "network_setting": CHOSEN,
    "asyncio_setting": tuple(kind for kind in KINDS if kind.network and kind.asyncio),
    "blocking_setting": tuple(kind for kind in CHOSEN if not kind.asyncio),
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test over the kinds of its setting."""
    named = [group for group in GROUPS if group in metafunc.fixturenames]
    if named:
        kinds = min((GROUPS[group] for group in named), key=len)
        metafunc.parametrize("kind", kinds, ids=[kind.name for kind in kinds])


@pytest.fixture(scope="session")
def databases() -> Iterator[Databases]:
    """Return the databases of this test process."""
    with ExitStack() as stack:
        yield Databases(stack)


@pytest.fixture
def setting(kind: Kind, databases: Databases) -> Iterator[Setting]:
    """Return one backend × driver × form."""
    with ExitStack() as stack:
        yield Setting(kind, databases.of(kind), stack)


@pytest.fixture
def network_setting(setting: Setting) -> Setting:
    """Return a setting on a server with row locks."""
    return setting


@pytest.fixture
def asyncio_setting(setting: Setting) -> Setting:
    """Return a setting of the asyncio form, on a server with row locks."""
    return setting


@pytest.fixture
def blocking_setting(setting: Setting) -> Setting:
    """Return a setting of the blocking form, on a server with row locks."""
    return setting
