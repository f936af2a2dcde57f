"""S28. The same names mean the same on every backend."""

from __future__ import annotations

from typing import Any

import pytest

from sqllocks import (
    AsyncMemoryLockProvider,
    AsyncSqlLockProvider,
    LockValidationError,
    MemoryLockProvider,
    SqlLockProvider,
)
from tests.conformance.driving import Client
from tests.conformance.kinds import KINDS, Kind
from tests.scenarios import jobs
from tests.scenarios.arena import TABLE_KINDS, Arena

TTL = 30.0
NAMES = {
    "job": "job",
    "capital": "Job",
    "blank-behind": "job ",
    "blank-before": " job",
    "accent": "jób",
    "accent-in-two": "jo\N{COMBINING ACUTE ACCENT}b",
    "slash": "job/1",
    "percent": "job%",
    "underscore": "job_1",
    "quote": "job'; DROP TABLE core_locks; --",
    "double-quote": 'job"',
    "backslash": "job\\",
    "line": "job\n",
    "64": "x" * 64,
    "65": "x" * 65,
    "255": "x" * 255,
    "emoji": "\N{LOCK}" * 60,
    "longest-emoji": "\N{LOCK}" * 255,
}
OUTSIDE = {
    "empty": "",
    "blank": "  ",
    "nul": "jo\0b",
    "256": "x" * 256,
    "2000": "x" * 2000,
    "surrogate": "job\udc80",
}
IDENTITY = [[one == other for other in NAMES] for one in NAMES]

each_table_kind = pytest.mark.parametrize("kind", TABLE_KINDS, ids=[kind.name for kind in TABLE_KINDS])


@each_table_kind
def test_s28_a_name_excludes_itself_and_nothing_else(arena: Arena, kind: Kind) -> None:
    if arena.server == "sqlite":
        arena.use_journal("WAL")  # four times as fast
    target = arena.target(kind)
    holder, other = arena.workers([target, target])
    matrix = []
    for name in NAMES.values():
        held = holder.run(jobs.call, target, "acquire", name, ttl=TTL)
        assert held.acquired
        assert held.lock_key == name
        granted = other.run(jobs.take_each, target, list(NAMES.values()), ttl=TTL)
        matrix.append([not each for each in granted])
        assert holder.run(jobs.call, target, "release", name, owner_token=held.owner_token) is True
    assert matrix == IDENTITY
    listed = [info.lock_key for info in other.run(jobs.call, target, "list_locks")]
    assert sorted(set(listed) - {"warm up"}) == sorted(NAMES.values())
    assert len(listed) == len(NAMES)
    # sorted by key, byte for byte, on each
    assert listed == sorted(NAMES.values(), key=str.encode)


def test_s28_in_memory_a_name_excludes_itself_and_nothing_else() -> None:
    with MemoryLockProvider() as provider:
        matrix = []
        for name in NAMES.values():
            held = provider.acquire(name, ttl=TTL)
            assert held.acquired
            row = []
            for other in NAMES.values():
                handle = provider.acquire(other, ttl=TTL)
                row.append(not handle.acquired)
                if handle:
                    assert provider.release(other, owner_token=handle.owner_token) is True
            matrix.append(row)
            assert provider.release(name, owner_token=held.owner_token) is True
        assert matrix == IDENTITY
        listed = [info.lock_key for info in provider.list_locks()]
        assert listed == sorted(NAMES.values(), key=str.encode)


@pytest.mark.parametrize("name", OUTSIDE.values(), ids=OUTSIDE)
@pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
def test_s28_a_name_outside_the_limits_is_refused_before_any_sql(kind: Kind, name: str) -> None:
    # nobody answers there, so that a statement would end in another error
    address = (
        "sqlite:////nonexistent/locks.db"
        if kind.server == "sqlite"
        else f"{kind.server}+{kind.driver}://nobody:secret@127.0.0.1:1/nothing"
    )
    client = closed_door(kind, address)
    calls: dict[str, dict[str, object]] = {
        "acquire": {"ttl": TTL},
        "require_acquire": {"ttl": TTL, "wait": 1},
        "extend": {"ttl": TTL, "owner_token": "me"},
        "release": {"owner_token": "me"},
        "locked": {},
        "inspect": {},
        "break_lock": {},
    }
    for method, options in calls.items():
        with pytest.raises(LockValidationError):
            client.call(method, name, **options)
    client.close()


def closed_door(kind: Kind, address: str) -> Client:
    """Return a client of a database that does not exist."""
    loop, threads = (jobs.clients.loop if kind.asyncio else None), jobs.clients.threads
    provider: Any
    if kind.table:
        provider = (AsyncSqlLockProvider if kind.asyncio else SqlLockProvider)(address)
    else:
        provider = (AsyncMemoryLockProvider if kind.asyncio else MemoryLockProvider)()
    return Client(provider, loop=loop, threads=threads)
