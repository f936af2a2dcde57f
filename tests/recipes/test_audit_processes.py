"""The audit chain does not fork, whatever its writers do; other tenants never wait (S23)."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from sqlalchemy import text

from sqllocks import LockTimeout, TransactionConflict
from tests.conformance.polling import Stopwatch
from tests.recipes import chaining
from tests.recipes.tables import parts_of
from tests.scenarios.arena import SERVERS, Arena
from tests.scenarios.workers import at_once

PROCESSES = 8
UNITS = int(os.environ.get("SQLLOCKS_AUDIT_UNITS", "3"))
"""Transactions of each process."""
TENANTS = ("acme", "globex")
NETWORK = ("postgresql", "mysql", "mariadb")


@pytest.mark.parametrize("server", SERVERS)
def test_no_fork_with_eight_processes_rollbacks_and_early_transactions(place: Arena, server: str) -> None:
    count = 4 if server == "sqlite" else PROCESSES
    targets = place.targets(count // 2)
    targets += place.targets(count // 2, setup=place.default_isolation("REPEATABLE READ"))
    workers = place.workers(targets)
    units = UNITS // 2 if server == "sqlite" else UNITS
    seeds = list(range(count))
    answers = at_once(workers, chaining.append_many, targets, [TENANTS] * count, seeds, count=units)
    committed: Counter[str] = Counter()
    met: Counter[str] = Counter()
    for answer in answers:
        assert isinstance(answer, chaining.Appended), answer
        committed += answer.committed
        met += answer.met
    assert met["rolled back"] > 0
    # the lock alone did it, not the unique constraint
    assert met["unlocked"] == 0
    parts = parts_of(place.target())
    with parts.sessions() as session:
        for tenant in TENANTS:
            found = parts.audit.verify(session, tenant=tenant)
            assert found, found.broken
            assert found.entries == committed[tenant] > 0


@pytest.mark.parametrize("server", NETWORK)
def test_other_tenants_never_wait(place: Arena, server: str) -> None:
    parts = parts_of(place.target())
    impatient = chaining.impatient(parts)
    with parts.sessions() as first:
        parts.audit.append(first, {"n": 1}, tenant="a")
        watch = Stopwatch()
        for tenant in ("b", None):
            with parts.sessions.begin() as second:
                impatient.append(second, {"n": 1}, tenant=tenant)
        assert watch.seconds < 1
        first.commit()


@pytest.mark.parametrize("server", NETWORK)
def test_s23_two_units_of_work_in_one_thread_get_an_error_and_do_not_hang(place: Arena, server: str) -> None:
    parts = parts_of(place.target())
    brief = chaining.impatient(parts, wait=0.3)
    with parts.sessions() as first, parts.sessions() as second:
        parts.audit.append(first, {"n": 1}, tenant="acme")
        watch = Stopwatch()
        with pytest.raises(LockTimeout, match="audit:hash-chain:tenant:acme"):
            brief.append(second, {"n": 2}, tenant="acme")
        assert watch.seconds < 3
        second.rollback()
        first.commit()
        assert brief.append(second, {"n": 3}, tenant="acme").sequence == 2
        second.commit()


@pytest.mark.parametrize("server", ["postgresql", "mariadb"])
def test_s23_an_append_waits_for_the_open_one_and_links_to_it(place: Arena, server: str) -> None:
    parts = parts_of(place.target())
    [worker] = place.workers([place.target()])
    with parts.sessions() as session:
        entry = parts.audit.append(session, {"n": 1}, tenant="acme")
        pending = worker.start(chaining.append_one, place.target(), "acme")
        # it waits: the chain is held
        assert place.client.locked("audit:hash-chain:tenant:acme")
        assert not pending.done
        session.commit()
    later = pending.result()
    assert (later.sequence, later.previous) == (2, entry.hash)


@pytest.mark.parametrize("server", NETWORK)
def test_a_snapshot_from_before_the_lock_is_refused_at_once(place: Arena, server: str) -> None:
    target = place.target(setup=place.default_isolation("REPEATABLE READ"))
    parts = parts_of(target)
    with parts.sessions() as session:
        session.execute(text("SELECT count(*) FROM audit_chain")).all()
        watch = Stopwatch()
        with pytest.raises(TransactionConflict) as caught:
            parts.audit.append(session, {"n": 1}, tenant="acme")
        assert watch.seconds < 1.5
        assert caught.value.retryable is False
        session.rollback()
        assert not place.client.locked("audit:hash-chain:tenant:acme")
        assert parts.audit.append(session, {"n": 1}, tenant="acme").sequence == 1
        session.commit()


@pytest.mark.parametrize("server", NETWORK)
def test_c079_the_lock_lasts_until_the_outermost_transaction_ends(place: Arena, server: str) -> None:
    parts = parts_of(place.target())
    key = "audit:hash-chain:tenant:a"
    for ending in ("commit", "rollback"):
        with parts.sessions() as session:
            with session.begin_nested():
                parts.audit.append(session, {"n": 1}, tenant="a")
            assert place.client.locked(key)
            with session.begin_nested() as savepoint:
                savepoint.rollback()
            assert place.client.locked(key)
            getattr(session, ending)()
            assert not place.client.locked(key)


@pytest.mark.parametrize("server", NETWORK)
def test_c080_a_second_record_in_one_session_does_not_acquire_again(place: Arena, server: str) -> None:
    parts = parts_of(place.target())
    with parts.sessions() as session:
        parts.audit.append(session, {"n": 1}, tenant="a")
        before = place.observer.stored("audit:hash-chain:tenant:a")
        parts.audit.append(session, {"n": 2}, tenant="a")
        after = place.observer.stored("audit:hash-chain:tenant:a")
        assert before is not None
        assert after is not None
        assert (before.attempt, before.fencing_token) == (after.attempt, after.fencing_token)
        session.commit()
        assert session.execute(text("SELECT count(*) FROM audit_chain")).scalar() == 2


@pytest.mark.parametrize("server", ["sqlite"])
def test_who_waited_for_the_file_is_not_turned_away_by_the_row_of_a_committed_transaction(
    place: Arena, server: str
) -> None:
    targets = place.targets(1) * 3
    workers = place.workers(targets)
    assert at_once(workers, chaining.append_plainly, targets, count=6) == [6] * 3
