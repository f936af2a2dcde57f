"""How many statements and connections lockers and candidates need: what is documented, counted."""

from __future__ import annotations

import time
from typing import Any

from tests.conformance.polling import until
from tests.locks.candidates import Candidate
from tests.locks.subject import LockSubject
from tests.waiting.counting import Counter

SECONDS = 1.5


def counted(subject: LockSubject) -> tuple[Any, Counter]:
    """Return an engine of the application and what counts its statements."""
    engine: Any = subject.engine()
    return engine, Counter(engine)


def during(counter: Counter, seconds: float) -> float:
    """Return the statements per second over that time."""
    before, began = counter.statements, time.monotonic()
    until(lambda: time.monotonic() >= began + seconds, within=seconds + 5)
    return (counter.statements - before) / (time.monotonic() - began)


def test_c131_a_hundred_locks_need_one_connection_and_one_statement_for_each_heartbeat(
    server_subject: LockSubject,
) -> None:
    subject = server_subject
    engine, counter = counted(subject)
    subject.do(subject.one.inspect("open"))
    subject.carrier("open")
    sessions = subject.observer.sessions()
    locker = subject.locker(engine, lease=6, heartbeat=0.5)
    locks = [subject.do(locker.try_lock(subject.key(str(number)))) for number in range(100)]
    first = subject.stored(locks[0].key).expires_at
    until(lambda: subject.stored(locks[0].key).expires_at > first, within=5, what="a heartbeat")
    assert during(counter, SECONDS) <= (SECONDS / 0.5 + 1) / SECONDS
    assert subject.observer.sessions() == sessions + 1
    assert len({subject.carrier(lock.key) for lock in locks[::10]}) == 1
    for lock in locks:
        assert not lock.lost
        assert subject.stored(lock.key).expires_at > first
        assert subject.do(lock.unlock()) is True


def test_c130_a_candidate_needs_about_two_statements_for_each_retry(server_subject: LockSubject) -> None:
    subject = server_subject
    retry = 0.25
    for strategy in ("session", "lease"):
        engine, counter = counted(subject)
        key = subject.key()
        leader = subject.elector(strategy=strategy)
        standby = subject.elector(engine, strategy=strategy, retry=retry)
        with Candidate(subject, leader, key) as first:
            first.leads()
            with Candidate(subject, standby, key):
                until(lambda: standby._campaign._contact, within=10, what="its first answer")  # noqa: B023
                rate = during(counter, SECONDS)
        # with pauses of three quarters of retry at least
        assert 0 < rate <= 2 * (1 + 1 / SECONDS) / (0.75 * retry), strategy
