"""M. One attempt is never taken for another."""

from __future__ import annotations

from typing import Any

import pytest

from sqllocks import BackendUnavailable, LockHandle
from tests.conformance.calls import TTL
from tests.conformance.driving import Call, together
from tests.conformance.polling import until
from tests.conformance.processes import ProcessPool, race
from tests.conformance.subject import Subject
from tests.faults import Relay


def test_c155_a_second_acquire_of_the_holder_is_refused(subject: Subject) -> None:
    key = subject.key()
    first = subject.a.acquire(key, ttl=TTL, owner_token="mine")
    before = subject.snapshot(key)
    for client in (subject.a, subject.b):
        second = client.acquire(key, ttl=10 * TTL, owner_token="mine")
        assert second.acquired is False
        assert second.owner_token == "mine"
        assert (second.fencing_token, second.expires_at) == (first.fencing_token, first.expires_at)
    assert subject.snapshot(key) == before


@pytest.mark.parametrize("state", ["unused", "expired"])
def test_c155_of_many_attempts_with_one_owner_token_one_wins(subject: Subject, state: str) -> None:
    key = subject.key()
    if state == "expired":
        subject.a.acquire(key, ttl=TTL, owner_token="mine")
        subject.expire(key)
    options = {"ttl": TTL, "owner_token": "mine"}
    handles = together([Call((subject.a, subject.b)[n % 2], "acquire", key, options) for n in range(8)])
    assert [handle for handle in handles if not isinstance(handle, LockHandle)] == []
    assert sum(handle.acquired for handle in handles) == 1


def test_c155_of_many_processes_with_one_owner_token_one_wins(
    table_subject: Subject, processes: ProcessPool
) -> None:
    others = processes.take(table_subject, 4)
    for _ in range(3):
        key = table_subject.key()
        handles = race(others, "call", method="acquire", arguments=(key,), ttl=TTL, owner_token="mine")
        assert [handle for handle in handles if not isinstance(handle, LockHandle)] == []
        assert sum(handle.acquired for handle in handles) == 1


@pytest.mark.parametrize("state", ["unused", "released", "held", "own"])
def test_c155_a_lost_answer_is_settled_by_what_is_stored(network_subject: Subject, state: str) -> None:
    key = network_subject.key()
    if state != "unused":
        owner = "mine" if state == "own" else "another"
        network_subject.a.acquire(key, ttl=TTL, owner_token=owner)
    if state == "released":
        network_subject.a.release(key, owner_token="another")
    before = network_subject.snapshot(key)
    with Relay(network_subject.url) as relay:
        client = network_subject.client(relay.address)
        client.locked("warm up")
        relay.lose_next_answer()
        try:
            handle = client.acquire(key, ttl=TTL, owner_token="mine")
        except BackendUnavailable:
            handle = None
        assert relay.lost.is_set()
        if state in {"held", "own"}:
            assert handle is None or handle.acquired is False
            assert network_subject.snapshot(key) == before
        elif handle is not None:
            row = network_subject.stored(key)
            assert handle.acquired is True, "one's own grant was taken for somebody else's"
            assert (row.owner_token, row.fencing_token) == ("mine", handle.fencing_token)
            assert row.expires_at == handle.expires_at
        else:
            until(
                lambda: not network_subject.b.locked(key), within=5, what="the give-back of a grant in doubt"
            )
        client.close(timeout=0.1)


@pytest.mark.parametrize("method", ["release", "extend", "break_lock"])
def test_c155_a_change_whose_answer_was_lost_is_told_as_it_is(network_subject: Subject, method: str) -> None:
    key = network_subject.key()
    handle = network_subject.a.acquire(key, ttl=TTL)
    methods: dict[str, dict[str, Any]] = {
        "release": {"owner_token": handle.owner_token},
        "extend": {"owner_token": handle.owner_token, "ttl": 90},
        "break_lock": {},
    }
    with Relay(network_subject.url) as relay:
        client = network_subject.client(relay.address)
        client.locked("warm up")
        relay.lose_next_answer()
        outcome: Any = None
        try:
            outcome = client.call(method, key, **methods[method])
        except BackendUnavailable as unavailable:
            error = unavailable
        if outcome is None:
            assert error.details["outcome"] == "unknown"
        else:
            row = network_subject.stored(key)
            if method == "extend":
                assert (outcome.expires_at, outcome.fencing_token) == (row.expires_at, handle.fencing_token)
                assert outcome.expires_at > handle.expires_at
            else:
                assert outcome is True
                assert row.attempt == ""
        assert relay.lost.is_set()
        client.close(timeout=0.1)


def test_c155_a_release_without_an_answer_is_unknown(network_subject: Subject) -> None:
    key = network_subject.key()
    handle = network_subject.a.acquire(key, ttl=TTL)
    with Relay(network_subject.url) as relay:
        client = network_subject.client(relay.address)
        client.locked("warm up")
        relay.lose_next_answer(then_refuse=True)
        with pytest.raises(BackendUnavailable) as caught:
            client.release(key, owner_token=handle.owner_token)
        assert relay.lost.is_set()
        assert caught.value.details["outcome"] == "unknown"
        assert caught.value.__cause__ is not None
        client.close(timeout=0.1)
