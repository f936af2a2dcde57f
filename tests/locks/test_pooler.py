"""Behind PgBouncer: what cannot exclude is refused, and what can excludes those with a direct connection."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from sqllocks import BackendUnsupported
from tests.conformance.polling import until
from tests.locks.candidates import Candidate, Chamber
from tests.locks.subject import LockSubject
from tests.servers import require_server
from tests.servers.urls import driverless

# statement caches do not go together with a transaction pooler
CACHES: dict[str, dict[str, Any]] = {
    "asyncpg": {"statement_cache_size": 0, "prepared_statement_cache_size": 0},
    "psycopg": {"prepare_threshold": None},
}


def pooled(subject: LockSubject, pooler: Any) -> Any:
    """Return an engine that reaches the subject's database through the pooler."""
    url = subject.url.set(host=pooler.host, port=pooler.port)
    return subject.engine(url, connect_args=CACHES[subject.kind.driver])


def test_session_locks_through_a_transaction_pooler_are_refused(postgresql_subject: LockSubject) -> None:
    subject = postgresql_subject
    engine = pooled(subject, driverless(require_server("pgbouncer")))
    key = subject.key()
    for options in ({}, {"pooler": "session"}):
        locker = subject.locker(engine, **options)
        with pytest.raises(BackendUnsupported, match="direct_url"):
            subject.do(locker.try_lock(key))
        assert subject.carrier(key) is None
    direct = subject.locker(engine, direct_url=subject.address)
    lock = subject.do(direct.try_lock(key))
    assert subject.do(subject.one.try_lock(key)) is None
    assert subject.do(lock.unlock()) is True
    with Candidate(subject, subject.elector(engine, strategy="session"), key) as candidate:
        until(candidate.done, what="the refusal")
        assert isinstance(candidate.outcome, BackendUnsupported)


def test_a_session_pooler_is_used_where_it_is_named_one(
    postgresql_subject: LockSubject, pgbouncer_session: str
) -> None:
    subject = postgresql_subject
    pooler = driverless(pgbouncer_session)
    url = subject.url.set(host=pooler.host, port=pooler.port)
    engine = subject.engine(url)
    key = subject.key()
    with pytest.raises(BackendUnsupported, match="pooler='session'"):
        subject.do(subject.locker(engine).try_lock(key))
    lock = subject.do(subject.locker(engine, pooler="session").try_lock(key))
    assert subject.carrier(key) is not None
    assert subject.do(subject.one.try_lock(key)) is None
    assert subject.do(lock.unlock()) is True


def test_c153_candidates_with_and_without_a_pooler_never_both_lead(postgresql_subject: LockSubject) -> None:
    subject = postgresql_subject
    engine = pooled(subject, driverless(require_server("pgbouncer")))
    key, chamber = subject.key(), Chamber()
    fast: dict[str, Any] = {"retry": 0.05, "lease": 6, "heartbeat": 1}
    electors = [
        subject.elector(engine, strategy="auto", **fast),
        subject.elector(engine, strategy="lease", **fast),
        subject.elector(strategy="session", **fast),
    ]
    with ExitStack() as stack:
        candidates = [
            stack.enter_context(Candidate(subject, each, key, chamber=chamber, term=0.03))
            for each in electors
        ]
        until(lambda: all(each.terms for each in candidates), within=30, what="a term for each")
    assert chamber.most == 1
    tokens = [term.fencing_token for each in candidates for term in each.terms]
    assert len(set(tokens)) == len(tokens)
