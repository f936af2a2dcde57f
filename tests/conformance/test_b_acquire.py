"""B. Acquire and require_acquire, one caller after the other."""

from __future__ import annotations

import gc
from datetime import timedelta

import pytest

from sqllocks import LockNotAcquired
from tests.conformance.calls import TTL
from tests.conformance.observing import EPOCH
from tests.conformance.polling import until
from tests.conformance.subject import Subject

GRAIN = timedelta(milliseconds=1)


def test_c014_a_new_key_is_granted_with_a_token_near_the_clock(subject: Subject) -> None:
    before = subject.now()
    handle = subject.a.acquire(subject.key(), ttl=TTL)
    after = subject.now()
    assert handle.acquired is True
    assert handle.fencing_token >= 1
    granted = EPOCH + timedelta(microseconds=handle.fencing_token)
    assert before - GRAIN <= granted <= after + GRAIN


def test_c015_a_busy_key_is_refused_without_an_exception(subject: Subject) -> None:
    key = subject.key()
    subject.a.acquire(key, ttl=TTL)
    before = subject.snapshot(key)
    assert subject.b.acquire(key, ttl=1).acquired is False
    assert subject.b.acquire(key, ttl=3_600, owner_token="b").acquired is False
    assert subject.snapshot(key) == before


def test_c016_a_loser_sees_its_own_owner_token_only(subject: Subject) -> None:
    key = subject.key()
    won = subject.a.acquire(key, ttl=TTL)
    fresh, named = subject.b.acquire(key, ttl=TTL), subject.b.acquire(key, ttl=TTL, owner_token="b")
    assert named.owner_token == "b"
    assert len({won.owner_token, fresh.owner_token, named.owner_token}) == 3
    for lost in (fresh, named):
        assert won.owner_token not in repr(lost)


def test_c017_a_loser_sees_the_holders_token_and_expiry(subject: Subject) -> None:
    key = subject.key()
    won = subject.a.acquire(key, ttl=TTL)
    lost = subject.b.acquire(key, ttl=1)
    assert (lost.fencing_token, lost.expires_at) == (won.fencing_token, won.expires_at)
    extended = subject.a.extend(key, owner_token=won.owner_token, ttl=2 * TTL)
    assert extended is not None
    assert subject.b.acquire(key, ttl=1).expires_at == extended.expires_at


def test_c021_an_owner_does_not_get_its_own_lock_twice(subject: Subject) -> None:
    key = subject.key()
    won = subject.a.acquire(key, ttl=TTL, owner_token="mine")
    before = subject.snapshot(key)
    again = subject.a.acquire(key, ttl=10 * TTL, owner_token="mine")
    assert again.acquired is False
    assert (again.expires_at, again.fencing_token) == (won.expires_at, won.fencing_token)
    assert subject.snapshot(key) == before


def test_c022_a_failed_handle_releases_nothing(subject: Subject) -> None:
    key = subject.key()
    won = subject.a.acquire(key, ttl=TTL)
    lost = subject.b.acquire(key, ttl=TTL)
    before = subject.snapshot(key)
    assert subject.b.release(key, owner_token=lost.owner_token) is False
    del lost
    gc.collect()
    assert subject.snapshot(key) == before
    assert subject.a.release(key, owner_token=won.owner_token) is True


def test_c022_closing_a_loser_releases_nothing(table_subject: Subject) -> None:
    key = table_subject.key()
    table_subject.a.acquire(key, ttl=TTL)
    before = table_subject.snapshot(key)
    loser = table_subject.client()
    assert not loser.acquire(key, ttl=TTL)
    loser.close()
    assert table_subject.snapshot(key) == before


def test_c022_the_holders_owner_token_releases_from_anywhere(subject: Subject) -> None:
    key = subject.key()
    subject.a.acquire(key, ttl=TTL, owner_token="mine")
    lost = subject.b.acquire(key, ttl=TTL, owner_token="mine")
    assert lost.acquired is False
    assert subject.b.release(key, owner_token=lost.owner_token) is True
    assert subject.a.locked(key) is False


def test_c023_an_expired_lock_goes_to_another_with_a_greater_token(subject: Subject) -> None:
    key = subject.key()
    first = subject.a.acquire(key, ttl=0.1)
    until(lambda: not subject.b.locked(key), what="the expiry")
    second = subject.b.acquire(key, ttl=TTL)
    assert second.acquired is True
    assert second.fencing_token > first.fencing_token
    assert second.owner_token != first.owner_token


@pytest.mark.parametrize("owner", ["mine", None])
def test_c024_an_expired_lock_goes_to_its_former_owner_with_a_greater_token(
    subject: Subject, owner: str | None
) -> None:
    key = subject.key()
    first = subject.a.acquire(key, ttl=TTL, owner_token="mine")
    subject.expire(key)
    second = subject.a.acquire(key, ttl=TTL, owner_token=owner)
    assert second.acquired is True
    assert second.fencing_token > first.fencing_token
    assert second.expires_at >= first.expires_at - timedelta(seconds=1)


def test_c024_a_new_grant_is_a_new_attempt(table_subject: Subject) -> None:
    key = table_subject.key()
    attempts = set()
    for _ in range(3):
        assert table_subject.a.acquire(key, ttl=TTL, owner_token="mine").acquired
        attempts.add(table_subject.stored(key).attempt)
        table_subject.expire(key)
    assert len(attempts) == 3
    assert "" not in attempts


def test_c025_a_lock_that_ends_now_counts_as_free(subject: Subject) -> None:
    # on a database the clock goes on between the two; the exact moment is tried with memory's clock
    for _ in range(5):
        key = subject.key()
        first = subject.a.acquire(key, ttl=TTL)
        subject.expire(key)
        assert subject.b.locked(key) is False
        second = subject.b.acquire(key, ttl=TTL)
        assert second.acquired is True
        assert second.fencing_token > first.fencing_token


def test_c026_require_acquire_raises_for_a_busy_key(subject: Subject) -> None:
    key = subject.key()
    subject.a.acquire(key, ttl=TTL)
    before = subject.snapshot(key)
    with pytest.raises(LockNotAcquired) as caught:
        subject.b.require_acquire(key, ttl=TTL)
    assert type(caught.value) is LockNotAcquired
    assert caught.value.details == {"lock_key": key}
    assert subject.snapshot(key) == before


def test_c027_require_acquire_gives_the_handle_of_acquire(subject: Subject) -> None:
    key = subject.key()
    before = subject.now()
    handle = subject.a.require_acquire(key, ttl=TTL, owner_token="mine")
    assert (handle.acquired, handle.lock_key, handle.owner_token) == (True, key, "mine")
    assert handle.expires_at >= before + timedelta(seconds=TTL) - GRAIN
    seen = subject.b.acquire(key, ttl=TTL)
    assert (seen.expires_at, seen.fencing_token) == (handle.expires_at, handle.fencing_token)
    if subject.kind.table:
        row = subject.stored(key)
        assert (row.owner_token, row.expires_at) == ("mine", handle.expires_at)
        assert row.fencing_token == handle.fencing_token
