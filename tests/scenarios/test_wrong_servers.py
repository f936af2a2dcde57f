"""Session locks on a hot standby, a read-only server, a Galera cluster, and through a promotion."""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, make_url

from sqllocks import BackendUnsupported
from tests.conformance.kinds import Kind
from tests.conformance.observing import Observer
from tests.conformance.polling import until
from tests.scenarios import electing, jobs, locking
from tests.scenarios.arena import NETWORK_KINDS, Arena
from tests.scenarios.electing import Log
from tests.scenarios.locking import Locker
from tests.scenarios.targets import Target
from tests.servers.fixtures import StandbyURLs
from tests.servers.standby import Standby
from tests.servers.urls import driverless

LEASE = 4.0
OPTIONS: dict[str, Any] = {"lease": LEASE, "heartbeat": 1}
PATIENCE = 40.0
POSTGRESQL_KINDS = tuple(kind for kind in NETWORK_KINDS if kind.server == "postgresql")
MARIADB_KINDS = tuple(kind for kind in NETWORK_KINDS if kind.server == "mariadb")


def target_at(kind: Kind, url: URL | str, **options: Any) -> Target:
    """Return how to reach a server with a driver."""
    address = kind.url(make_url(url)).render_as_string(hide_password=False)
    return Target(address, kind.asyncio, **options)


def refused(target: Target, match: str) -> None:
    """Ask for a session lock where none can be had."""
    with Locker(target, **OPTIONS) as locker, pytest.raises(BackendUnsupported, match=match):
        locker.lock("refused", wait=5)


def test_a_hot_standby_is_refused(standby: StandbyURLs) -> None:
    for kind in POSTGRESQL_KINDS:
        refused(target_at(kind, standby.standby), "hot standby.*Remedy: pass a URL of the primary")


@pytest.mark.parametrize("server", ["postgresql"])
def test_a_session_that_may_only_read_is_refused(arena: Arena, server: str) -> None:
    read_only = ("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",)
    for kind in arena.kinds[:1]:
        refused(arena.target(kind, setup=read_only), "read-only.*Remedy")


def test_a_galera_cluster_is_refused_and_its_leases_exclude(galera: tuple[str, ...], tmp_path: Path) -> None:
    kind = MARIADB_KINDS[0]
    for url in galera:
        refused(target_at(kind, driverless(url)), "Galera.*Remedy: use leases.*strategy='lease'")
    with ExitStack() as stack:
        arena = Arena("mariadb", galera[0], stack)
        name = arena.url.database
        nodes = [driverless(url).set(database=name) for url in galera]
        until(lambda: all(has_table(kind, node) for node in nodes), within=PATIENCE)
        targets = [target_at(each, node) for each, node in zip(MARIADB_KINDS * 2, nodes, strict=False)]
        key, log = arena.key(), Log(tmp_path / "terms")
        options: dict[str, Any] = {**OPTIONS, "retry": 0.3}
        workers = arena.processes(len(targets))
        pids = []
        for worker, target in zip(workers, targets, strict=True):
            # left to itself, a candidate finds that it can lead by a lease only
            pids.append(worker.run(electing.stand, target, key, str(log.path), **options))
        for number in range(len(targets)):
            leading = until(partial(log.leader, key), within=PATIENCE)
            assert leading is not None
            row = arena.observer.stored(f"election:{key}")
            assert row is not None
            assert row.kind == "lease"
            for target in targets:
                assert not jobs.clients.of(target).acquire(f"election:{key}", ttl=30)
            before = len(log.entries(key, "start"))
            assert workers[pids.index(leading)].run(electing.resign, key) == ""
            if number + 1 < len(targets):
                until(partial(began, log, key, before), within=PATIENCE)
        assert len(electing.check_terms(log, key)) == len(targets)
        arena.check_quiet()


def began(log: Log, key: str, before: int) -> bool:
    """Tell whether one more term has begun."""
    return len(log.entries(key, "start")) > before


def has_table(kind: Kind, url: URL) -> bool:
    """Tell whether a node has the lock table already."""
    observer = Observer(kind, url)
    try:
        return bool(
            observer.rows(
                "SELECT 1 FROM information_schema.tables"
                " WHERE table_schema = database() AND table_name = 'core_locks'"
            )
        )
    finally:
        observer.close()


def test_a_promoted_standby_keeps_the_primarys_locks_busy_until_they_expire(
    own_standby: Standby, tmp_path: Path
) -> None:
    kind, log = POSTGRESQL_KINDS[0], Log(tmp_path / "terms")
    with ExitStack() as stack:
        arena = Arena("postgresql", own_standby.primary, stack)
        key, term = arena.key("held"), arena.key("term")
        holder, candidate = arena.processes(2)
        old = arena.target(kind)
        new = target_at(kind, driverless(own_standby.url).set(database=arena.url.database))
        options: dict[str, Any] = {**OPTIONS, "retry": 0.3}
        holder.run(locking.open_locker, old, **OPTIONS)
        leader = holder.run(electing.stand, old, term, str(log.path), strategy="session", **options)
        token = holder.run(locking.take, old, key).token
        until(partial(log.leader, term), within=PATIENCE)
        own_standby.catch_up()
        refused(new, "hot standby")
        own_standby.primary.kill()
        died = time.monotonic()
        own_standby.promote()
        there = Observer(kind, make_url(new.address))
        stack.callback(there.close)
        row = there.stored(key)
        assert row is not None
        # the server-side lock is free there, and says nothing of the holder
        assert locking.carrier(there, key) is None
        with Locker(new, **OPTIONS) as locker:
            candidate.run(electing.stand, new, term, str(log.path), strategy="session", **options)
            held = locker.lock(key, wait=PATIENCE)
            taken = there.stored(key)
            assert taken is not None
            assert taken.acquired_at >= row.expires_at
            assert time.monotonic() - died < LEASE + 6
            assert held.token > token
            facts = holder.run(locking.facts, key)
            assert (facts.lost, facts.check, len(facts.losses)) == (True, "LeaseLost", 1)
            assert held.unlock()
        until(lambda: log.leader(term) not in (None, leader), within=PATIENCE)
        assert candidate.run(electing.resign, term) == ""
        assert holder.run(electing.resign, term) == ""
        assert len(electing.check_terms(log, term)) == 2
        assert (
            there.rows("SELECT 1 FROM core_locks WHERE attempt <> '' AND expires_at > clock_timestamp()")
            == []
        )
