"""B. Many callers at once: tasks or threads, and other processes."""

from __future__ import annotations

import pytest

from sqllocks import LockHandle, LockNotAcquired
from tests.conformance.calls import TTL
from tests.conformance.driving import Call, together
from tests.conformance.processes import ProcessPool, race
from tests.conformance.subject import Subject

CALLERS = 8
ROUNDS = 4
BEFORE = ["released", "expired"]


def prepare(subject: Subject, key: str, state: str) -> int:
    """Bring a key into a state of being free; return its last token."""
    if state == "unused":
        return 0
    handle = subject.a.acquire(key, ttl=TTL)
    if state == "released":
        assert subject.a.release(key, owner_token=handle.owner_token)
    else:
        subject.expire(key)
    return handle.fencing_token


def one_winner(subject: Subject, key: str, outcomes: list[object], last: int) -> LockHandle:
    """Assert that one caller won, that the losers report the winner's grant, and that nobody failed."""
    handles = [outcome for outcome in outcomes if isinstance(outcome, LockHandle)]
    assert handles == outcomes, [outcome for outcome in outcomes if not isinstance(outcome, LockHandle)]
    winners = [handle for handle in handles if handle.acquired]
    assert len(winners) == 1
    winner = winners[0]
    assert winner.fencing_token > last
    for loser in handles:
        assert (loser.fencing_token, loser.expires_at) == (winner.fencing_token, winner.expires_at)
        assert loser.expires_at > subject.now()
    assert len({handle.owner_token for handle in handles}) == len(handles)
    if subject.kind.table:
        assert subject.stored(key).owner_token == winner.owner_token
    return winner


def callers(subject: Subject, key: str, count: int = CALLERS) -> list[Call]:
    """Return calls of acquire, on both clients by turns."""
    return [Call((subject.a, subject.b)[turn % 2], "acquire", key, {"ttl": TTL}) for turn in range(count)]


@pytest.mark.parametrize("state", BEFORE)
def test_c018_losers_of_a_race_see_the_new_holder(subject: Subject, state: str) -> None:
    for _ in range(ROUNDS):
        key = subject.key()
        last = prepare(subject, key, state)
        one_winner(subject, key, together(callers(subject, key)), last)


@pytest.mark.parametrize("state", BEFORE)
def test_c018_losers_in_other_processes_see_the_new_holder(
    table_subject: Subject, processes: ProcessPool, state: str
) -> None:
    others = processes.take(table_subject, 4)
    for _ in range(ROUNDS):
        key = table_subject.key()
        last = prepare(table_subject, key, state)
        outcomes = race(others, "call", method="acquire", arguments=(key,), ttl=TTL)
        one_winner(table_subject, key, outcomes, last)


def test_c019_one_of_many_gets_a_key_that_has_no_row(subject: Subject) -> None:
    for _ in range(ROUNDS):
        key = subject.key()
        one_winner(subject, key, together(callers(subject, key)), 0)


def test_c019_one_of_many_processes_gets_a_key_that_has_no_row(
    table_subject: Subject, processes: ProcessPool
) -> None:
    others = processes.take(table_subject, 6)
    for _ in range(ROUNDS):
        key = table_subject.key()
        outcomes = race(others, "call", method="acquire", arguments=(key,), ttl=TTL)
        one_winner(table_subject, key, outcomes, 0)


def test_c020_one_of_many_gets_an_expired_key(subject: Subject) -> None:
    key = subject.key()
    last = prepare(subject, key, "expired")
    for _ in range(ROUNDS):
        winner = one_winner(subject, key, together(callers(subject, key)), last)
        last = winner.fencing_token
        subject.expire(key)


def test_c020_one_of_many_processes_gets_an_expired_key(
    table_subject: Subject, processes: ProcessPool
) -> None:
    others = processes.take(table_subject, 6)
    key = table_subject.key()
    last = prepare(table_subject, key, "expired")
    for _ in range(ROUNDS):
        outcomes = race(others, "call", method="acquire", arguments=(key,), ttl=TTL)
        last = one_winner(table_subject, key, outcomes, last).fencing_token
        table_subject.expire(key)


@pytest.mark.parametrize("state", ["unused", *BEFORE])
def test_c028_acquire_never_raises_for_contention(subject: Subject, state: str) -> None:
    key = subject.key()
    prepare(subject, key, state)
    outcomes = together(
        [
            *callers(subject, key, 4),
            *[Call(subject.b, "require_acquire", key, {"ttl": TTL}) for _ in range(4)],
        ]
    )
    assert all(isinstance(outcome, LockHandle) for outcome in outcomes[:4]), outcomes[:4]
    assert all(isinstance(outcome, LockHandle | LockNotAcquired) for outcome in outcomes[4:]), outcomes[4:]
    won = [outcome for outcome in outcomes if isinstance(outcome, LockHandle) and outcome.acquired]
    assert len(won) == 1
