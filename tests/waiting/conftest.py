"""Give each test the backends, drivers and forms that it names by its argument."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.conformance.kinds import KINDS, Kind
from tests.waiting.settings import Databases, Setting

GROUPS = {
    "setting": KINDS,
    "table_setting": tuple(kind for kind in KINDS if kind.table),
    "polling_setting": tuple(kind for kind in KINDS if kind.table and kind.server != "postgresql"),
    "told_setting": tuple(kind for kind in KINDS if kind.server == "postgresql"),
    "network_setting": tuple(kind for kind in KINDS if kind.network),
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
def table_setting(setting: Setting) -> Setting:
    """Return a setting whose locks are rows."""
    return setting


@pytest.fixture
def polling_setting(setting: Setting) -> Setting:
    """Return a setting where nobody tells of releases."""
    return setting


@pytest.fixture
def told_setting(setting: Setting) -> Setting:
    """Return a setting whose server tells of releases."""
    return setting


@pytest.fixture
def network_setting(setting: Setting) -> Setting:
    """Return a setting on a server with row locks."""
    return setting
