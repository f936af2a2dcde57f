"""S16. The loser knows that it lost, whatever the driver counts, and leaves the winner's row alone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.kinds import Kind
from tests.scenarios import jobs
from tests.scenarios.arena import NETWORK_KINDS, TABLE_KINDS, Arena
from tests.scenarios.targets import Target
from tests.servers import DRIVERS

TRIES = 100
TTL = 60.0
HOLDER = "worker-a"
FOUND_ROWS = 2  # CLIENT_FOUND_ROWS of the protocol

MYSQL_KINDS = tuple(kind for kind in NETWORK_KINDS if DRIVERS[kind.driver] == "mysql")
each_kind = pytest.mark.parametrize("kind", TABLE_KINDS, ids=[kind.name for kind in TABLE_KINDS])
each_mysql_kind = pytest.mark.parametrize("kind", MYSQL_KINDS, ids=[kind.name for kind in MYSQL_KINDS])


def row_of(arena: Arena, key: str) -> tuple[Any, ...]:
    """Return the row with its place in the table and, on PostgreSQL, its last lock."""
    row = arena.observer.raw(key)
    assert row is not None
    if arena.server != "postgresql":
        return row
    locked_by = arena.observer.rows("SELECT xmax::text FROM core_locks WHERE lock_key = :key", key=key)
    return (*row, *locked_by)


def lose(arena: Arena, target: Target) -> None:
    """Hold a key, let another process try it again and again, and compare the row before and after."""
    key = arena.key("held")
    holder = arena.target(holder=HOLDER)
    held = jobs.call(holder, "acquire", key, ttl=TTL)
    assert held.acquired
    before = row_of(arena, key)
    (worker,) = arena.workers([target])
    mine = worker.run(lose_often, target, key, owner_token=held.owner_token)
    others = worker.run(lose_often, target, key, owner_token=None)
    assert row_of(arena, key) == before
    assert len(mine) == len(others) == TRIES // 2
    for granted, expires_at, token in mine + others:
        assert granted is False
        assert (expires_at, token) == (held.expires_at, held.fencing_token)
    assert jobs.call(holder, "release", key, owner_token=held.owner_token) is True


def lose_often(target: Target, key: str, *, owner_token: str | None) -> list[tuple[bool, Any, int]]:
    """Try a held key with the same ttl; with an owner token of somebody else, or a fresh one."""
    client = jobs.clients.of(target)
    handles = [client.acquire(key, ttl=TTL, owner_token=owner_token) for _ in range(TRIES // 2)]
    return [(handle.acquired, handle.expires_at, handle.fencing_token) for handle in handles]


@each_kind
def test_s16_a_loser_changes_nothing(arena: Arena, kind: Kind) -> None:
    lose(arena, arena.target(kind, holder=HOLDER))


@pytest.mark.parametrize("found_rows", [True, False], ids=["found", "changed"])
@each_mysql_kind
def test_s16_a_loser_knows_it_whichever_rows_are_counted(
    arena: Arena, kind: Kind, *, found_rows: bool
) -> None:
    target = arena.target(
        kind, holder=HOLDER, connect_args=(("client_flag", FOUND_ROWS if found_rows else 0),)
    )
    lose(arena, target)
    assert count_of_idle_update(arena, target) == (1 if found_rows else 0)


def count_of_idle_update(arena: Arena, target: Target) -> int:
    """Return the count that the driver gives for an update that changes nothing in one row."""
    row = "VALUES ('idle', '', '', '', '', '', 0, '2000-01-01', '2000-01-01')"
    arena.observer.rows(f"INSERT IGNORE INTO core_locks {row}")
    engine: Any = arena.engine(target)
    statement = "UPDATE core_locks SET holder = holder WHERE lock_key = 'idle'"

    async def counted() -> int:
        async with engine.begin() as connection:
            return int((await connection.exec_driver_sql(statement)).rowcount)

    if target.asyncio:
        return jobs.clients.loop.run(counted())
    with engine.begin() as connection:
        return int(connection.exec_driver_sql(statement).rowcount)
