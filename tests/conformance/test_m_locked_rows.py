"""M. A row that somebody's transaction has locked holds up nobody else."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from sqllocks import BackendUnavailable
from tests.conformance.calls import TTL
from tests.conformance.polling import Stopwatch, quickly, throughout
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


def test_c157_a_locked_row_is_asked_for_two_seconds(table_subject: Subject) -> None:
    subject = table_subject
    # a release and an extend wait at the same time; on SQLite the first locked row locks the file for both
    handles = {method: subject.a.acquire(subject.key(method), ttl=TTL) for method in CALLS}
    keys = [handle.lock_key for handle in handles.values()]
    clients = [subject.client() for _ in keys]
    before = [subject.stored(key) for key in keys]
    with ExitStack() as stack:
        for key in keys if subject.kind.network else keys[:1]:
            stack.enter_context(subject.observer.holding(key))
        watch = Stopwatch()
        pending = [
            client.start(method, handle.lock_key, **options(method, handle.owner_token))
            for client, (method, handle) in zip(clients, handles.items(), strict=True)
        ]
        for key, future in zip(keys, pending, strict=True):
            error = future.exception(3 * PATIENCE)
            assert 0.9 * PATIENCE <= watch.seconds <= 2 * PATIENCE
            assert isinstance(error, BackendUnavailable)
            assert error.details["outcome"] == "pending"
            assert error.details["lock_key"] == key
        assert [subject.stored(key) for key in keys] == before
    # part of the promise is that the call goes on later; by hand it works at once
    for handle in handles.values():
        subject.a.release(handle.lock_key, owner_token=handle.owner_token)
        assert subject.b.locked(handle.lock_key) is False


@pytest.mark.parametrize("method", CALLS)
def test_c157_a_row_lock_that_goes_away_in_time_does_no_harm(table_subject: Subject, method: str) -> None:
    key = table_subject.key()
    handle = table_subject.a.acquire(key, ttl=TTL)
    with table_subject.observer.holding(key) as foreign:
        pending = table_subject.a.start(method, key, **options(method, handle.owner_token))
        throughout(0.3, lambda: not pending.done())
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
