"""Leases through PgBouncer in transaction mode: each statement may run on another server session."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise

import psycopg
import pytest
from sqlalchemy import URL, make_url

from tests.conformance.kinds import Kind
from tests.scenarios import jobs
from tests.scenarios.arena import NETWORK_KINDS, Arena
from tests.scenarios.targets import Target
from tests.servers import require_server
from tests.servers.pgbouncer import SETTINGS as POOLER_SETTINGS

ROUNDS = 50
LIMIT = 60.0
TTL = 30.0
SERVER_SESSIONS = int(POOLER_SETTINGS["default_pool_size"])
SETTINGS = (
    "lock_timeout",
    "statement_timeout",
    "synchronous_commit",
    "default_transaction_isolation",
    "TimeZone",
)
POSTGRESQL_KINDS = tuple(kind for kind in NETWORK_KINDS if kind.server == "postgresql")
# a prepared statement belongs to one server session, so nothing may be prepared under a name
UNPREPARED = {
    "psycopg": (("prepare_threshold", None),),
    "asyncpg": (("statement_cache_size", 0), ("prepared_statement_cache_size", 0)),
}


@dataclass(frozen=True, slots=True)
class Round:
    """One grant: the moments between which this process surely held the key, and its token."""

    won: float
    given_back: float
    token: int


def take_turns(moment: float, target: Target, key: str) -> list[Round]:
    """Acquire, extend and release the key ``ROUNDS`` times."""
    client = jobs.clients.of(target)
    turns: list[Round] = []
    jobs.wait_until(moment)
    while len(turns) < ROUNDS:
        assert time.monotonic() < moment + LIMIT, f"only {len(turns)} rounds"
        handle = client.acquire(key, ttl=TTL)
        if not handle:
            continue
        won = time.monotonic()
        extended = client.extend(key, owner_token=handle.owner_token, ttl=2 * TTL)
        assert extended is not None
        assert extended.fencing_token == handle.fencing_token
        turns.append(Round(won, time.monotonic(), handle.fencing_token))
        assert client.release(key, owner_token=handle.owner_token) is True
    return turns


@pytest.fixture(scope="module")
def direct() -> Iterator[Arena]:
    """Return a database on the PostgreSQL behind the pooler, reached directly."""
    require_server("pgbouncer")
    require_server("postgresql")
    with ExitStack() as stack:
        yield Arena("postgresql", "postgresql", stack)


@pytest.fixture
def pooled(direct: Arena) -> Iterator[URL]:
    """Return the same database as it is reached through the pooler."""
    yield make_url(require_server("pgbouncer")).set(database=direct.url.database)
    direct.check_quiet()
    direct.calm()


@pytest.mark.parametrize("kind", POSTGRESQL_KINDS, ids=[kind.name for kind in POSTGRESQL_KINDS])
def test_leases_hold_through_a_transaction_pooler(direct: Arena, pooled: URL, kind: Kind) -> None:
    check_pooler(pooled)
    unchanged = {settings(direct.url)}
    assert settings_of_each_session(pooled) == unchanged
    target = Target(
        kind.url(pooled).render_as_string(hide_password=False),
        kind.asyncio,
        connect_args=UNPREPARED[kind.driver],
    )
    key = direct.key()
    workers = direct.workers([target, target])
    moment = time.monotonic() + 0.05
    begun = [worker.start(take_turns, moment, target, key) for worker in workers]
    turns = [pending.result() for pending in begun]
    assert {len(each) for each in turns} == {ROUNDS}
    ordered = sorted((turn for each in turns for turn in each), key=lambda turn: turn.won)
    for earlier, later in pairwise(ordered):
        assert earlier.given_back <= later.won, "both held the key"
        assert earlier.token < later.token
    assert settings_of_each_session(pooled) == unchanged


def check_pooler(url: URL) -> None:
    """Make sure that this is a pooler which hands out its sessions by transaction."""
    with psycopg.connect(address_of(url), autocommit=True, prepare_threshold=None) as first:
        told = first.info.backend_pid
        found = first.execute("SELECT pg_backend_pid()").fetchone()
        assert found is not None
        assert found[0] != told, "nothing stands between"
        with psycopg.connect(address_of(url), prepare_threshold=None) as second:
            # its transaction keeps the session that the first one used a moment ago
            assert second.execute("SELECT pg_backend_pid()").fetchone() == found


def settings_of_each_session(url: URL) -> set[tuple[str, ...]]:
    """Return the settings that other clients find on the pooler's server sessions, all at once."""
    found = set()
    sessions = set()
    with ExitStack() as stack:
        for _ in range(SERVER_SESSIONS):
            client = stack.enter_context(psycopg.connect(address_of(url), prepare_threshold=None))
            # a transaction stays open and keeps its session, so that the next client gets another
            sessions.add(client.execute("SELECT pg_backend_pid()").fetchone())
            found.add(shown(client))
    assert len(sessions) == SERVER_SESSIONS
    return found


def settings(url: URL) -> tuple[str, ...]:
    """Return the settings of a new session."""
    with psycopg.connect(address_of(url)) as client:
        return shown(client)


def shown(client: psycopg.Connection) -> tuple[str, ...]:
    """Return the settings that a client finds."""
    rows = [client.execute(f"SHOW {name}".encode()).fetchone() for name in SETTINGS]
    return tuple(str(row[0]) for row in rows if row is not None)


def address_of(url: URL) -> str:
    """Return the address for a plain driver."""
    return url.set(drivername="postgresql").render_as_string(hide_password=False)
