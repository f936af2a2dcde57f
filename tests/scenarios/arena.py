"""The place of a scenario: one database, who takes part, and what must be left at the end: nothing."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from sqlalchemy import URL, Engine, make_url
from sqlalchemy.ext.asyncio import AsyncEngine

from tests.conformance.driving import Client
from tests.conformance.kinds import KINDS, Kind
from tests.conformance.observing import Observer
from tests.conformance.polling import until
from tests.scenarios import jobs
from tests.scenarios.targets import Target
from tests.scenarios.workers import Worker, end
from tests.servers import Server, fresh_database

SERVERS = ("postgresql", "mysql", "mariadb", "sqlite")
TABLE_KINDS = tuple(kind for kind in KINDS if kind.table)
NETWORK_KINDS = tuple(kind for kind in KINDS if kind.network)
ALL = "SQLLOCKS_ALL_ROUNDS" in os.environ
"""Whether scenarios run on every driver and form, and as often as they were written down."""


def some_kinds(*names: str) -> tuple[Kind, ...]:
    """Return the drivers and forms that a scenario needs, or all of them where a run is to be thorough."""
    return tuple(kind for kind in NETWORK_KINDS if ALL or kind.name in names)


HELD = "SELECT lock_key FROM core_locks WHERE attempt <> '' AND expires_at > {clock}"
SAMPLE = 5


class Arena:
    """A database of its own on one server, with the lock table in it."""

    def __init__(self, server: str, where: Server | URL | str, stack: ExitStack) -> None:
        self.server = server
        self.kinds = tuple(kind for kind in TABLE_KINDS if kind.server == server)
        self.url = make_url(stack.enter_context(fresh_database(where)))
        self.observer = Observer(self.kinds[0], self.url)
        stack.callback(self.observer.close)
        self._engines: list[Engine | AsyncEngine] = []
        self._workers: list[Worker] = []
        self._plain = self.target()
        # closed first, and so registered last
        stack.callback(self.calm)
        self.client.call("create_table")

    @property
    def client(self) -> Client:
        """Return a client of the test's own process."""
        return jobs.clients.of(self._plain)

    def target(self, kind: Kind | None = None, **options: Any) -> Target:
        """Return how to reach the database, by default through the blocking driver."""
        kind = kind or self.kinds[0]
        address = kind.url(self.url).render_as_string(hide_password=False)
        return Target(address, kind.asyncio, **options)

    def targets(self, count: int, **options: Any) -> list[Target]:
        """Return that many targets, spread over all drivers and forms of the server."""
        return [self.target(self.kinds[number % len(self.kinds)], **options) for number in range(count)]

    def default_isolation(self, level: str) -> tuple[str, ...]:
        """Return what makes the level the default of a session, also outside the application's engine."""
        if self.server == "sqlite":
            return ()
        characteristics = "CHARACTERISTICS AS " if self.server == "postgresql" else ""
        return (f"SET SESSION {characteristics}TRANSACTION ISOLATION LEVEL {level}",)

    def engine(self, target: Target, **options: Any) -> Engine | AsyncEngine:
        """Return an engine of the application, whose pool must be full again at the end."""
        engine = target.engine(**options)
        self._engines.append(engine)
        return engine

    def workers(self, targets: Sequence[Target]) -> list[Worker]:
        """Return a new process for each target, with its client open."""
        workers = self.processes(len(targets))
        begun = [worker.start(jobs.warm_up, target) for worker, target in zip(workers, targets, strict=True)]
        for pending in begun:
            pending.result()
        return workers

    def processes(self, count: int) -> list[Worker]:
        """Return new processes that have nothing open."""
        workers = [Worker() for _ in range(count)]
        self._workers += workers
        return workers

    def key(self, label: str = "key") -> str:
        """Return a key that was never used."""
        return f"{label}:{uuid.uuid4().hex[:12]}"

    def held(self) -> list[str]:
        """Return the keys that are held, as an onlooker sees it."""
        rows = self.observer.rows(HELD.format(clock=self.observer.clock))
        return [str(key) for (key,) in rows]

    def check_quiet(self) -> None:
        """Nothing is left: no lock, no transaction, no waiter, no connection of the application."""
        assert self.held() == []
        until(lambda: self.waiting() == 0, within=2, what="a backend still waits for a lock")
        self._check_transactions()
        for (key,) in self.observer.rows(f"SELECT lock_key FROM core_locks LIMIT {SAMPLE}"):
            handle = self.client.acquire(key, ttl=5)
            assert handle.acquired, f"{key!r} is not free"
            assert self.client.release(key, owner_token=handle.owner_token) is True
        for engine in self._engines:
            pool: Any = (engine.sync_engine if isinstance(engine, AsyncEngine) else engine).pool
            assert pool.checkedout() == 0, "a connection of the application was not given back"

    def _check_transactions(self) -> None:
        limit = time.monotonic() + 5
        while self.observer.open_transactions():
            assert time.monotonic() < limit, "a transaction is left open"
            # MySQL and MariaDB look anew only when nobody has asked for 0.1 s
            time.sleep(0.25)

    def waiting(self) -> int:
        """Count the sessions on this database that wait for a lock of any kind."""
        if self.server == "sqlite":
            return 0
        counted = (
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
            if self.server == "postgresql"
            else "SELECT count(*) FROM information_schema.processlist"
            " WHERE db = database() AND command = 'Query' AND id <> connection_id()"
        )
        return int(self.observer.rows(counted)[0][0])

    def use_journal(self, mode: str) -> None:
        """Let the SQLite file keep its journal in this way."""
        self.calm()  # the change needs the file alone
        self.observer.close()
        assert self.observer.rows(f"PRAGMA journal_mode = {mode}") == [(mode.lower(),)]

    def calm(self) -> None:
        """Close what the test and its processes have open."""
        for engine in self._engines:
            if isinstance(engine, AsyncEngine):
                jobs.clients.loop.run(engine.dispose())
            else:
                engine.dispose()
        self._engines.clear()
        end(self._workers)
        self._workers.clear()
        self.close_clients()

    def close_clients(self) -> None:
        """Close the library's connections of the test's own process."""
        jobs.close_all()


def sessions(observer: Observer) -> set[int]:
    """Return the server's sessions on the database, but for the observer's own."""
    if observer.server == "sqlite":
        return set()
    statement = (
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
        " AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
        if observer.server == "postgresql"
        else "SELECT id FROM information_schema.processlist WHERE db = database() AND id <> connection_id()"
    )
    return {int(number) for (number,) in observer.rows(statement)}
