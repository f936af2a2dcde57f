"""Galera and group replication: the guard has to change the row, and is told by one question."""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import event, literal, select

from sqllocks import BackendUnavailable, BackendUnsupported, LockHandle, StaleFencingToken
from sqllocks.dialects.guards import is_clustered, note_cluster
from sqllocks.fencing import Guards
from tests.conformance.calls import TTL
from tests.conformance.polling import until
from tests.conformance.subject import Subject
from tests.fencing.application import LEVELS, Application
from tests.golden.test_golden import dialect_of, mysql_dialect

GALERA = [("wsrep_on", "ON"), ("wsrep_provider", "/usr/lib/galera/libgalera_smm.so")]


@pytest.fixture
def clustered(application: Application, subject: Subject) -> Any:
    """Return an engine that is believed to lead to a cluster."""
    engine = application.engine()
    with application.transaction(engine=engine) as transaction:
        transaction.execute("SELECT 1")
    note_cluster(engine.dialect, GALERA)
    return engine


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ([], False),
        (GALERA, True),
        ([("wsrep_on", "OFF"), ("wsrep_provider", "/usr/lib/galera/libgalera_smm.so")], False),
        ([("wsrep_on", "ON"), ("wsrep_provider", "none")], False),
        ([("group_replication_group_name", "")], False),
        ([("group_replication_group_name", "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa")], True),
    ],
)
def test_what_the_answer_means(answer: Any, expected: bool) -> None:
    dialect = mysql_dialect(mariadb=True)
    assert is_clustered(dialect) is None
    assert note_cluster(dialect, answer) is expected
    assert is_clustered(dialect) is expected


def test_it_is_asked_once_for_each_engine(application: Application, mysql_subject: Subject) -> None:
    engine = application.engine()
    asked: list[str] = []

    @event.listens_for(getattr(engine, "sync_engine", engine), "before_cursor_execute")
    def listen(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if "wsrep" in statement:
            asked.append(statement)

    handle = mysql_subject.a.acquire(mysql_subject.key(), ttl=TTL)
    for guards in (Guards(), Guards()):
        with application.transaction(engine=engine) as transaction:
            transaction.guard(handle, guards=guards)
    assert len(asked) == 1
    assert is_clustered(engine.dialect) is False


def test_the_question_takes_no_snapshot(application: Application, mysql_subject: Subject) -> None:
    key = mysql_subject.key()
    with application.transaction(isolation_level="REPEATABLE READ") as transaction:
        transaction.execute("SHOW GLOBAL VARIABLES LIKE 'wsrep_on'")
        handle = mysql_subject.a.acquire(key, ttl=TTL)
        transaction.guard(handle)


def test_the_guard_changes_the_row(application: Application, mysql_subject: Subject, clustered: Any) -> None:
    handle = mysql_subject.a.acquire(mysql_subject.key(), ttl=TTL)
    before = mysql_subject.stored(handle.lock_key)
    seen = [before]
    for _ in range(3):
        with application.transaction(engine=clustered) as transaction:
            transaction.guard(handle)
            transaction.commit()
        seen.append(mysql_subject.stored(handle.lock_key))
    for one, next_one in itertools.pairwise(seen):
        assert one != next_one
        assert abs((one.acquired_at - next_one.acquired_at).total_seconds()) == 0.000001
    assert seen[0] == seen[2], "up and down"
    assert mysql_subject.b.acquire(handle.lock_key, ttl=TTL).acquired is False
    assert mysql_subject.a.release(handle.lock_key, owner_token=handle.owner_token) is True


def test_the_guard_proves_and_pins_there_too(
    application: Application, mysql_subject: Subject, clustered: Any
) -> None:
    # at all levels at the same time, so that their leases expire together
    with ExitStack() as stack:
        guarded = []
        for level in LEVELS[mysql_subject.kind.server]:
            stale = mysql_subject.a.acquire(mysql_subject.key(), ttl=TTL)
            mysql_subject.expire(stale.lock_key)
            present = mysql_subject.b.acquire(stale.lock_key, ttl=2)
            engine = clustered.execution_options(isolation_level=level)
            transaction = stack.enter_context(application.transaction(engine=engine))
            with pytest.raises(StaleFencingToken):
                transaction.guard(stale)
            transaction.rollback()
            transaction.guard(present)
            transaction.guard(present)
            guarded.append((present, transaction))
        for present, transaction in guarded:
            until(lambda moment=present.expires_at: mysql_subject.now() > moment, what="the expiry")  # type: ignore[misc]
            assert mysql_subject.a.acquire(present.lock_key, ttl=TTL).acquired is False
            transaction.commit()
    assert len(application.pins.told) == 2 * len(LEVELS[mysql_subject.kind.server])


def test_fenced_is_refused(application: Application, mysql_subject: Subject, clustered: Any) -> None:
    handle = mysql_subject.a.acquire(mysql_subject.key(), ttl=TTL)
    with pytest.raises(BackendUnsupported, match=r"guard\(\)"):
        Guards(dialect=clustered.dialect).fenced(handle)
    unknowing = Guards().fenced(handle)
    with application.transaction(engine=clustered) as transaction, pytest.raises(BackendUnsupported):
        transaction.execute(select(literal(1)).where(unknowing))


@pytest.mark.parametrize("server", ["postgresql", "mysql", "mariadb", "sqlite"])
def test_fenced_asks_nothing_but_must_know(server: str) -> None:
    dialect = dialect_of(server)
    handle = LockHandle(True, "k", "o", datetime.now(UTC), 1)
    guards = Guards(dialect=dialect)
    if server in {"mysql", "mariadb"}:
        with pytest.raises(BackendUnavailable, match="cluster"):
            guards.fenced(handle)
        note_cluster(dialect, [])
    assert guards.fenced(handle) is not None
