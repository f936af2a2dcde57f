"""S23. An audit lock lasts until the commit, and a savepoint that is rolled back does not drop it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqllocks import LockTimeout
from tests.conformance.polling import Stopwatch, until
from tests.scenarios import chaining
from tests.scenarios.arena import SERVERS, Arena
from tests.scenarios.chaining import Appended, append, append_one
from tests.scenarios.workers import Pending

PATIENCE = 30.0
OPEN = 1.0
SLACK = 0.5
# on SQLite the open transaction has the whole file, so there is nothing to see
each_server = pytest.mark.parametrize("server", SERVERS[:3])


@pytest.fixture
def tenant(arena: Arena) -> str:
    """Return a tenant without entries; the table is made where it is missing."""
    identity = chaining.IDENTITY.get(arena.server, "BIGINT AUTO_INCREMENT PRIMARY KEY")
    table = chaining.TABLE.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1)
    arena.observer.rows(table.format(identity=identity))
    return arena.key("tenant")


@contextmanager
def unit_of_work(arena: Arena) -> Iterator[Session]:
    """Open a transaction of the application, which commits at the end."""
    engine = arena.engine(arena.target())
    assert isinstance(engine, Engine)
    with Session(engine) as session, session.begin():
        yield session


def chain(arena: Arena, tenant: str) -> list[str]:
    """Return the bodies of a tenant's chain; fails where it forks or has a gap."""
    found = arena.observer.rows(
        "SELECT number, previous, body FROM audit WHERE tenant = :tenant ORDER BY number, id", tenant=tenant
    )
    assert [number for number, _, _ in found] == list(range(1, len(found) + 1)), f"it forks: {found}"
    assert all(previous == number - 1 for number, previous, _ in found)
    return [body for _, _, body in found]


def appending(arena: Arena, tenant: str, *, wait: float) -> list[Pending[Appended]]:
    """Let a process of each driver and form append to the chain."""
    targets = [arena.target(kind) for kind in arena.kinds]
    return [
        worker.start(append_one, target, tenant, kind.name, wait=wait)
        for worker, target, kind in zip(arena.workers(targets), targets, arena.kinds, strict=True)
    ]


@each_server
def test_s23_an_append_waits_for_the_commit_before_it(arena: Arena, tenant: str, server: str) -> None:
    with unit_of_work(arena) as session:
        append(arena.client.provider, session, tenant, "first", wait=0)
        others = appending(arena, tenant, wait=PATIENCE)
        watch = Stopwatch()
        until(lambda: watch.seconds > OPEN, within=2 * OPEN)
        assert not any(each.done for each in others)
        assert chain(arena, tenant) == []
        committing = time.monotonic()
    appended = [each.result() for each in others]
    assert all(each.committed > committing for each in appended)
    assert sorted(each.number for each in appended) == list(range(2, len(others) + 2))
    assert chain(arena, tenant)[0] == "first"
    assert len(chain(arena, tenant)) == len(others) + 1


@each_server
def test_s23_a_savepoint_that_is_rolled_back_does_not_drop_the_lock(
    arena: Arena, tenant: str, server: str
) -> None:
    locks = arena.client.provider
    with unit_of_work(arena) as session:
        savepoint = session.begin_nested()
        assert append(locks, session, tenant, "undone", wait=0) == 1
        savepoint.rollback()
        # between the rollback and the commit nobody gets in: not for a try, not for a wait
        others = appending(arena, tenant, wait=0.3)
        for each in others:
            refused = each.outcome()
            assert isinstance(refused, LockTimeout), refused
        assert append(locks, session, tenant, "kept", wait=0) == 1
        assert append(locks, session, tenant, "and another", wait=0) == 2
    assert chain(arena, tenant) == ["kept", "and another"]
    until(lambda: not arena.client.locked(chaining.key(tenant)), within=2)
    for each in appending(arena, tenant, wait=PATIENCE):
        each.result()
    assert len(chain(arena, tenant)) == 2 + len(others)


@each_server
def test_s23_two_units_of_work_in_one_thread_end_with_an_error_that_says_why(
    arena: Arena, tenant: str, server: str
) -> None:
    locks = arena.client.provider
    with unit_of_work(arena) as session:
        append(locks, session, tenant, "first", wait=0)
        watch = Stopwatch()
        with pytest.raises(LockTimeout) as refused, unit_of_work(arena) as second:
            append(locks, second, tenant, "second", wait=0.5)
        assert 0.4 < watch.seconds < 0.5 + SLACK + 1.0
        # the tenant, and who is in the way since when
        assert tenant in refused.value.message
        info = arena.client.inspect(chaining.key(tenant))
        assert info is not None
        assert info.holder in refused.value.message
        assert info.acquired_at is not None
        assert f"{info.acquired_at:%H:%M:%S}" in refused.value.message
    assert chain(arena, tenant) == ["first"]
