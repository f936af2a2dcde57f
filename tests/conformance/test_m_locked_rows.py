"""M. A row that somebody's transaction has locked holds up nobody else."""

from __future__ import annotations

import pytest

from sqllocks import BackendUnavailable
from tests.conformance.calls import TTL
from tests.conformance.polling import Stopwatch, quickly
from tests.conformance.subject import Subject

PROMPT = 0.5
PATIENCE = 2.0
CALLS = ["release", "extend"]


def options(method: str, owner_token: str) -> dict[str, object]:
    """Return the arguments of a release or an extend."""
    return {"owner_token": owner_token, **({"ttl": TTL} if method == "extend" else {})}


@pytest.mark.parametrize("method", CALLS)
def test_c157_others_are_done_at_once_beside_a_locked_row(network_subject: Subject, method: str) -> None:
    client = network_subject.client()

    def attempt() -> float:
        stuck, free = network_subject.key("stuck"), network_subject.key("free")
        first, second = client.acquire(stuck, ttl=TTL), client.acquire(free, ttl=TTL)
        with network_subject.observer.holding(stuck) as foreign:
            pending = client.start(method, stuck, **options(method, first.owner_token))
            watch = Stopwatch()
            assert client.extend(free, owner_token=second.owner_token, ttl=2 * TTL) is not None
            assert client.locked(free) is True
            assert client.release(free, owner_token=second.owner_token) is True
            assert client.acquire(free, ttl=TTL).acquired is True
            if (seconds := watch.seconds) < PROMPT:
                assert not pending.done()
                foreign.end()
                outcome = pending.result(5)
                assert outcome if method == "extend" else outcome is True
        return seconds

    quickly(attempt, within=PROMPT)


@pytest.mark.parametrize("method", CALLS)
def test_c157_a_locked_row_is_asked_for_two_seconds(table_subject: Subject, method: str) -> None:
    key = table_subject.key()
    handle = table_subject.a.acquire(key, ttl=TTL)
    before = table_subject.stored(key)
    with table_subject.observer.holding(key):
        watch = Stopwatch()
        with pytest.raises(BackendUnavailable) as caught:
            table_subject.a.call(method, key, **options(method, handle.owner_token))
        assert 0.9 * PATIENCE <= watch.seconds <= 2 * PATIENCE
        assert caught.value.details["outcome"] == "pending"
        assert caught.value.details["lock_key"] == key
        assert table_subject.stored(key) == before
    # part of the promise is that the call goes on later; by hand it works at once
    table_subject.a.release(key, owner_token=handle.owner_token)
    assert table_subject.b.locked(key) is False


@pytest.mark.parametrize("method", CALLS)
def test_c157_a_row_lock_that_goes_away_in_time_does_no_harm(table_subject: Subject, method: str) -> None:
    key = table_subject.key()
    handle = table_subject.a.acquire(key, ttl=TTL)
    with table_subject.observer.holding(key) as foreign:
        pending = table_subject.a.start(method, key, **options(method, handle.owner_token))
        watch = Stopwatch()
        while watch.seconds < 0.3:
            assert not pending.done()
        foreign.end()
        outcome = pending.result(5)
    if method == "release":
        assert outcome is True
        assert table_subject.b.locked(key) is False
    else:
        assert outcome.fencing_token == handle.fencing_token
        assert outcome.expires_at == table_subject.stored(key).expires_at


@pytest.mark.parametrize("method", CALLS)
def test_c157_a_locked_row_of_another_is_answered_without_waiting(
    network_subject: Subject, method: str
) -> None:
    key = network_subject.key()
    network_subject.a.acquire(key, ttl=TTL)

    def attempt() -> float:
        watch = Stopwatch()
        outcome = network_subject.b.call(method, key, **options(method, "somebody else"))
        assert outcome is (False if method == "release" else None)
        return watch.seconds

    with network_subject.observer.holding(key):
        quickly(attempt, within=PROMPT)
