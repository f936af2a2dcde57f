"""S08. Session locks and elections through PgBouncer, in transaction mode and in session mode."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, make_url

from sqllocks import AsyncSqlElector, BackendUnsupported, SqlElector
from tests.conformance.kinds import Kind
from tests.conformance.polling import until
from tests.scenarios import electing, jobs
from tests.scenarios.arena import NETWORK_KINDS, Arena
from tests.scenarios.electing import Log
from tests.scenarios.locking import Locker
from tests.scenarios.targets import Target
from tests.scenarios.test_pgbouncer import UNPREPARED
from tests.servers import require_server

OPTIONS: dict[str, Any] = {"lease": 9, "heartbeat": 0.75}
PATIENCE = 30.0
POSTGRESQL_KINDS = tuple(kind for kind in NETWORK_KINDS if kind.server == "postgresql")
ADVISORY = (
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
each_kind = pytest.mark.parametrize("kind", POSTGRESQL_KINDS, ids=[kind.name for kind in POSTGRESQL_KINDS])


@pytest.fixture(scope="module")
def direct() -> Iterator[Arena]:
    """Return a database on the PostgreSQL behind the pooler, reached directly."""
    require_server("pgbouncer")
    require_server("postgresql")
    with ExitStack() as stack:
        yield Arena("postgresql", "postgresql", stack)


@pytest.fixture
def pooled(direct: Arena) -> Iterator[URL]:
    """Return the same database as it is reached through the pooler; no session lock may be left in it."""
    yield make_url(require_server("pgbouncer")).set(database=direct.url.database)
    until(lambda: direct.observer.rows(ADVISORY) == [(0,)], what="an advisory lock is stranded")
    direct.check_quiet()
    direct.calm()


def target_of(kind: Kind, url: URL) -> Target:
    """Return how to reach a pooler with a driver."""
    address = kind.url(url).render_as_string(hide_password=False)
    return Target(address, kind.asyncio, connect_args=UNPREPARED[kind.driver])


@each_kind
@pytest.mark.parametrize("pooler", [None, "session"])
def test_s08_a_session_lock_through_a_transaction_pooler_is_refused(
    direct: Arena, pooled: URL, kind: Kind, pooler: str | None
) -> None:
    # also where somebody claims that it keeps sessions: that is put to the test
    with Locker(target_of(kind, pooled), pooler=pooler, **OPTIONS) as locker:
        for call in (locker.lock, locker.try_lock):
            with pytest.raises(BackendUnsupported, match=r"pooler.*Remedy: direct_url=") as caught:
                call(direct.key())
    assert caught.value.code == "LOCK_BACKEND_UNSUPPORTED"


@each_kind
def test_s08_an_election_by_session_lock_through_it_is_refused(
    direct: Arena, pooled: URL, kind: Kind
) -> None:
    led: list[Any] = []
    target = target_of(kind, pooled)
    form: Any = AsyncSqlElector if kind.asyncio else SqlElector
    elector = form(target.engine(), strategy="session", **OPTIONS)

    async def stand() -> None:
        await elector.run("s08", led.append)

    async def close() -> None:
        await elector.aclose()

    with pytest.raises(BackendUnsupported, match="strategy='lease'"):
        jobs.clients.loop.run(stand()) if kind.asyncio else elector.run("s08", led.append)
    jobs.clients.loop.run(close()) if kind.asyncio else elector.close()
    assert led == []


@each_kind
def test_s08_a_direct_address_carries_session_locks_beside_the_pooler(
    direct: Arena, pooled: URL, kind: Kind
) -> None:
    key, target = direct.key(), target_of(kind, pooled)
    straight = direct.target(kind)
    with (
        Locker(target, direct_url=straight.address, **OPTIONS) as one,
        Locker(straight, **OPTIONS) as two,
        Locker(target, direct_url=straight.address, **OPTIONS) as three,
    ):
        held = one.lock(key)
        assert two.try_lock(key) is None
        assert three.try_lock(key) is None
        assert held.proven()
        # leases of the same key, which go through the pooler
        assert not jobs.clients.of(target).acquire(key, ttl=30)
        assert held.unlock()
        after = two.lock(key)
        assert after.token > held.token
        assert after.unlock()
        lease = jobs.clients.of(target).acquire(key, ttl=30)
        assert lease.fencing_token > after.token
        assert one.try_lock(key) is None
        assert jobs.clients.of(target).release(key, owner_token=lease.owner_token)


@each_kind
def test_s08_a_pooler_by_session_carries_them_where_it_is_said_to_be_one(
    direct: Arena, pooled: URL, pgbouncer_session: str, kind: Kind
) -> None:
    target = target_of(kind, make_url(pgbouncer_session).set(database=direct.url.database))
    key = direct.key()
    with Locker(target, **OPTIONS) as unsaid, pytest.raises(BackendUnsupported, match="pooler='session'"):
        unsaid.lock(key)
    with Locker(target, pooler="session", **OPTIONS) as one, Locker(direct.target(), **OPTIONS) as two:
        held = one.lock(key)
        assert two.try_lock(key) is None
        assert held.proven()
        assert held.unlock()
        other = two.lock(key)
        assert one.try_lock(key) is None
        assert other.unlock()


def test_s08_candidates_with_and_without_a_pooler_exclude_each_other(
    direct: Arena, pooled: URL, tmp_path: Path
) -> None:
    log, key = Log(tmp_path / "terms"), direct.key()
    targets = [target_of(kind, pooled) for kind in POSTGRESQL_KINDS] + [direct.target()]
    options: dict[str, Any] = {**OPTIONS, "retry": 0.2}
    workers = direct.processes(len(targets))
    pids = []
    for worker, target in zip(workers, targets, strict=True):
        pids.append(worker.run(electing.stand, target, key, str(log.path), **options))
    for _ in targets:
        leading = until(partial(log.leader, key), within=PATIENCE)
        assert leading is not None
        row = direct.observer.stored(f"election:{key}")
        assert row is not None
        # behind the pooler it is a lease that carries the term
        assert row.kind == ("session" if leading == pids[-1] else "lease")
        before = len(log.entries(key, "start"))
        assert workers[pids.index(leading)].run(electing.resign, key) == ""
        if before < len(targets):
            until(partial(began, log, key, before), within=PATIENCE)
    assert len(electing.check_terms(log, key)) >= len(targets)


def began(log: Log, key: str, before: int) -> bool:
    """Tell whether one more term has begun."""
    return len(log.entries(key, "start")) > before
