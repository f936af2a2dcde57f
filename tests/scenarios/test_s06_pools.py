"""S02, S03, S06, S07. Session locks beside the application's pool and the server's own time limits."""

from __future__ import annotations

import gc
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from sqllocks import LeaseLost, LockNotAcquired, LockTimeout
from tests.conformance.kinds import Kind
from tests.conformance.polling import throughout, until
from tests.scenarios import electing, jobs, locking
from tests.scenarios.arena import ALL, NETWORK_KINDS, Arena, some_kinds
from tests.scenarios.electing import Log
from tests.scenarios.locking import Locker

OPTIONS: dict[str, Any] = {"lease": 3, "heartbeat": 0.75}
ROUNDS = 20 if ALL else 2
PATIENCE = 30.0
LIMITS = {
    "postgresql": (
        "SET idle_in_transaction_session_timeout = '1s'",
        "SET idle_session_timeout = '1s'",
    ),
    "mysql": ("SET SESSION wait_timeout = 1",),
    "mariadb": ("SET SESSION wait_timeout = 1",),
}
"""How the server ends idle sessions, as the application's connections are told."""
LOOK = (
    "SELECT pid, CASE WHEN state_change < clock_timestamp() - interval '0.2 s' THEN state ELSE '' END,"
    " coalesce(backend_xmin::text, ''), query FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
)
SOME = some_kinds(
    "postgresql-psycopg-blocking",
    "postgresql-asyncpg-asyncio",
    "mariadb-pymysql-blocking",
    "mysql-aiomysql-asyncio",
)
each_kind = pytest.mark.parametrize("kind", SOME, ids=[kind.name for kind in SOME])


@pytest.mark.parametrize("server", list(LIMITS))
def test_s02_s03_idle_holders_and_leaders_stay_and_are_in_no_transaction(
    arena: Arena, server: str, tmp_path: Path
) -> None:
    targets = [arena.target(kind, setup=LIMITS[server]) for kind in (arena.kinds[0], arena.kinds[-1])]
    log, term, key = Log(tmp_path / "terms"), arena.key("term"), arena.key("held")
    holder, other = arena.processes(2)
    holder.run(locking.open_locker, targets[0], **OPTIONS)
    other.run(locking.open_locker, targets[1], **OPTIONS)
    holder.run(locking.take, targets[0], key)
    for worker, target in ((holder, targets[0]), (other, targets[1])):
        worker.run(electing.stand, target, term, str(log.path), strategy="session", **OPTIONS)
    leader = until(partial(log.leader, term), within=PATIENCE)
    waiting = other.start(locking.take_all, targets[1], [key], wait=PATIENCE)
    owner = locking.carrier(arena.observer, key)
    assert owner is not None
    horizons: dict[tuple[int, str], float] = {}

    def steady() -> bool:
        assert locking.carrier(arena.observer, key) == owner
        if server == "postgresql":
            now, before = time.monotonic(), dict(horizons)
            horizons.clear()
            for pid, state, xmin, query in arena.observer.rows(LOOK):
                assert not str(state).startswith("idle in transaction"), query
                if xmin:
                    # a snapshot that lasts keeps the whole server from cleaning up
                    horizons[pid, xmin] = before.get((pid, xmin), now)
                    assert now - horizons[pid, xmin] < 0.5, query
        return True

    # longer than the server's limit, and than the lease
    throughout(3.3, steady)
    assert log.leader(term) == leader
    assert holder.run(locking.proven, key)
    assert holder.run(locking.give_back, key)
    waiting.result()
    assert other.run(locking.give_back, key)
    for worker in (holder, other):
        assert worker.run(electing.resign, term) == ""
    electing.check_terms(log, term)


class Application:
    """An application with two connections, whose engine the library was given."""

    def __init__(self, arena: Arena, kind: Kind) -> None:
        self.arena = arena
        self.asyncio = kind.asyncio
        target = arena.target(kind)
        self.engine = arena.engine(target, pool_size=2, max_overflow=0, pool_timeout=5)
        self.locker = Locker(target, self.engine, **OPTIONS)
        self.other = Locker(target, **OPTIONS)

    @property
    def checked_out(self) -> int:
        pool: Any = self.engine.sync_engine.pool if isinstance(self.engine, AsyncEngine) else self.engine.pool
        return int(pool.checkedout())

    def execute(self, statement: str) -> list[Any]:
        """Run a statement on each of the pool's connections at once."""
        if isinstance(self.engine, AsyncEngine):
            return jobs.clients.loop.run(self._on_both(statement))
        with self.engine.connect() as one, self.engine.connect() as two:
            return [each.execute(text(statement)).all() for each in (one, two)]

    async def _on_both(self, statement: str) -> list[Any]:
        assert isinstance(self.engine, AsyncEngine)
        async with self.engine.connect() as one, self.engine.connect() as two:
            return [(await each.execute(text(statement))).all() for each in (one, two)]

    def close(self) -> None:
        self.locker.close()
        self.other.close()

    # -- how a block can end

    def block(self, key: str, body: Callable[[], None]) -> None:
        if not self.asyncio:
            with self.locker.locker.lock(key, wait=5):
                body()
            return

        async def work() -> None:
            async with await self.locker.locker.lock(key, wait=5):
                body()

        jobs.clients.loop.run(work())

    def ends(self, key: str) -> None:
        self.block(key, lambda: None)

    def raises(self, key: str) -> None:
        def body() -> None:
            raise ValueError("body")

        with pytest.raises(ValueError, match="body"):
            self.block(key, body)

    def fails(self, key: str) -> None:
        held = self.locker.lock(key)
        with pytest.raises(DBAPIError):
            self.execute("SELECT 1 FROM no_such_table")
        assert held.unlock()

    def is_killed(self, key: str) -> None:
        def body() -> None:
            session = locking.carrier(self.arena.observer, key)
            assert session is not None
            locking.kill(self.arena.observer, session)

        with pytest.raises(LeaseLost):
            self.block(key, body)
        # the row is not expired, but who holds the server-side lock knows that its holder has gone
        follower = self.other.try_lock(key)
        assert follower is not None
        assert follower.unlock()

    def is_refused(self, key: str) -> None:
        held = self.other.lock(key)
        before = self.checked_out
        assert self.locker.try_lock(key) is None
        assert self.checked_out == before
        assert held.unlock()

    def runs_out(self, key: str) -> None:
        held = self.other.lock(key)
        with pytest.raises(LockTimeout):
            self.locker.lock(key, wait=0.02)
        assert held.unlock()

    def is_dropped(self, key: str) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            lock = self.locker.do(self.locker.locker.lock, key)
            del lock
            # what ran on the loop last may be kept by its task for a moment
            until(lambda: gc.collect() >= 0 and caught, what="a warning")
        assert any("neither released nor left" in str(each.message) for each in caught)


def freed(arena: Arena, key: str) -> bool:
    """Tell whether no session holds the server-side lock of a key."""
    return locking.carrier(arena.observer, key) is None


@each_kind
def test_s06_nothing_held_goes_back_to_the_applications_pool(arena: Arena, kind: Kind) -> None:
    application = Application(arena, kind)
    settings = (
        "SELECT name, setting FROM pg_settings WHERE source = 'session' AND name LIKE '%timeout%'"
        if arena.server == "postgresql"
        else "SELECT @@wait_timeout, @@autocommit"
    )
    before = application.execute(settings)
    ways = (
        application.ends,
        application.raises,
        application.fails,
        application.is_killed,
        application.is_refused,
        application.runs_out,
        application.is_dropped,
    )
    for way in ways:
        for _ in range(ROUNDS):
            key = arena.key(way.__name__)
            way(key)
            until(partial(freed, arena, key), within=1, what=way.__name__)
            until(lambda: application.checked_out == 0, within=1, what=way.__name__)
        assert application.execute(settings) == before
        assert arena.observer.open_transactions() == 0
    application.close()


@pytest.mark.parametrize("kind", NETWORK_KINDS, ids=[kind.name for kind in NETWORK_KINDS])
def test_s07_two_guards_of_one_name_on_one_engine(arena: Arena, kind: Kind) -> None:
    target, key = arena.target(kind), arena.key()
    engine = arena.engine(target, pool_size=1, max_overflow=0)
    with Locker(target, engine, **OPTIONS) as locker, ThreadPoolExecutor(1) as threads:
        first = locker.lock(key)
        assert locker.try_lock(key) is None
        with pytest.raises(LockNotAcquired):
            locker.lock(key, wait=0)
        # in the asyncio form each of these is a task of its own
        assert threads.submit(locker.try_lock, key).result(PATIENCE) is None
        began, entered = time.monotonic(), threading.Event()

        def wait() -> Any:
            entered.set()
            return locker.lock(key, wait=PATIENCE)

        waiting = threads.submit(wait)
        assert entered.wait(PATIENCE)
        assert locker.try_lock(key) is None
        assert not waiting.done()
        assert first.proven()
        assert first.unlock()
        second = waiting.result(PATIENCE)
        assert time.monotonic() - began < 5
        assert second.token > first.token
        # one who has nothing to give back takes nothing from the one who holds it
        first.unlock()
        assert second.proven()
        assert locker.try_lock(key) is None
        assert second.unlock()
        assert locking.carrier(arena.observer, key) is None
