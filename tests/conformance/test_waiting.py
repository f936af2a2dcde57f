"""Waiting for a key: ``require_acquire(wait=…)``."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest

from sqllocks import BackendUnavailable, LockNotAcquired, LockTimeout, LockValidationError
from tests.conformance.calls import TTL
from tests.conformance.polling import Stopwatch
from tests.conformance.subject import Subject


@pytest.mark.parametrize("wait", [0.3, timedelta(milliseconds=300)], ids=str)
def test_a_wait_that_runs_out_is_a_timeout_that_names_the_holder(subject: Subject, wait: Any) -> None:
    key = subject.key()
    subject.a.acquire(key, ttl=TTL, owner_token="the-secret-owner")
    before = subject.snapshot(key)
    info = subject.b.inspect(key)
    assert info is not None
    assert info.acquired_at is not None
    watch = Stopwatch()
    with pytest.raises(LockTimeout) as caught:
        subject.b.require_acquire(key, ttl=TTL, wait=wait)
    assert 0.3 <= watch.seconds < 2
    assert isinstance(caught.value, TimeoutError)
    assert isinstance(caught.value, LockNotAcquired)
    assert caught.value.details["lock_key"] == key
    assert (caught.value.code, caught.value.status) == ("LOCK_NOT_ACQUIRED", 409)
    assert key in str(caught.value)
    assert info.holder in str(caught.value)
    assert str(info.acquired_at.year) in str(caught.value)
    assert "the-secret-owner" not in str(caught.value)
    assert subject.snapshot(key) == before


@pytest.mark.parametrize("wait", [20, None])
def test_a_waiter_gets_the_key_when_it_is_released(subject: Subject, wait: float | None) -> None:
    key = subject.key()
    handle = subject.a.acquire(key, ttl=TTL)
    waiting = subject.b.start("require_acquire", key, ttl=TTL, wait=wait)
    assert subject.a.locked(key) is True
    assert not waiting.done()
    assert subject.a.release(key, owner_token=handle.owner_token) is True
    won = waiting.result(10)
    assert won.acquired is True
    assert won.fencing_token > handle.fencing_token


def test_a_waiter_gets_the_key_when_it_expires(subject: Subject) -> None:
    key = subject.key()
    handle = subject.a.acquire(key, ttl=0.3)
    watch = Stopwatch()
    won = subject.b.require_acquire(key, ttl=TTL, wait=20)
    assert won.acquired is True
    assert won.fencing_token > handle.fencing_token
    assert watch.seconds < 8  # the wait and the lease of others last longer; a busy machine may be late


def test_one_after_the_other_gets_the_key(subject: Subject) -> None:
    key = subject.key()
    held = subject.a.acquire(key, ttl=TTL)
    waiting = [subject.b.start("require_acquire", key, ttl=0.2, wait=30) for _ in range(4)]
    subject.a.release(key, owner_token=held.owner_token)
    tokens = [future.result(30).fencing_token for future in waiting]
    assert len(set(tokens)) == 4


@pytest.mark.parametrize("wait", [-1, -0.001, math.nan, math.inf, True, "5", timedelta(seconds=-1)], ids=repr)
def test_a_wait_that_is_no_span_is_refused(subject: Subject, wait: Any) -> None:
    key = subject.key()
    with pytest.raises(LockValidationError) as caught:
        subject.a.require_acquire(key, ttl=TTL, wait=wait)
    assert caught.value.code == "VALIDATION_ERROR"
    assert subject.unknown(key)


def test_a_waiter_outlasts_errors_and_raises_the_last_one(table_subject: Subject) -> None:
    client = table_subject.client(table_subject.unreachable)
    watch = Stopwatch()
    with pytest.raises(BackendUnavailable):
        client.require_acquire("key", ttl=TTL, wait=0.5)
    assert 0.5 <= watch.seconds < 5
