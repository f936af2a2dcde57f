"""C. Release."""

from __future__ import annotations

import pytest

from tests.conformance.calls import TTL
from tests.conformance.subject import Subject


def test_c032_a_released_key_is_free_at_once(subject: Subject) -> None:
    for _ in range(5):  # a clock or column without a fraction of a second would show
        key = subject.key()
        handle = subject.a.acquire(key, ttl=TTL)
        assert subject.a.release(key, owner_token=handle.owner_token) is True
        assert subject.a.locked(key) is False
        assert subject.b.locked(key) is False
        assert subject.b.acquire(key, ttl=TTL).acquired is True


def test_c033_another_cannot_release(subject: Subject) -> None:
    key = subject.key()
    subject.a.acquire(key, ttl=TTL)
    before = subject.snapshot(key)
    assert subject.b.release(key, owner_token="b") is False
    assert subject.snapshot(key) == before
    assert subject.a.locked(key) is True


def test_c034_a_second_release_is_false(subject: Subject) -> None:
    key = subject.key()
    handle = subject.a.acquire(key, ttl=TTL)
    assert subject.a.release(key, owner_token=handle.owner_token) is True
    before = subject.snapshot(key)
    assert subject.a.release(key, owner_token=handle.owner_token) is False
    assert subject.b.release(key, owner_token=handle.owner_token) is False
    assert subject.snapshot(key) == before


def test_c035_an_expired_lock_cannot_be_released(subject: Subject) -> None:
    key = subject.key()
    handle = subject.a.acquire(key, ttl=TTL)
    subject.expire(key)
    before = subject.snapshot(key)
    assert subject.a.release(key, owner_token=handle.owner_token) is False
    assert subject.snapshot(key) == before


def test_c036_a_release_after_a_takeover_leaves_the_new_holder(subject: Subject) -> None:
    key = subject.key()
    first = subject.a.acquire(key, ttl=TTL)
    subject.expire(key)
    second = subject.b.acquire(key, ttl=TTL)
    assert second.acquired is True
    before = subject.snapshot(key)
    assert subject.a.release(key, owner_token=first.owner_token) is False
    assert subject.snapshot(key) == before
    assert subject.b.release(key, owner_token=second.owner_token) is True


def test_c037_a_key_without_a_row_stays_without(subject: Subject) -> None:
    key = subject.key()
    assert subject.a.release(key, owner_token="a") is False
    assert subject.a.extend(key, owner_token="a", ttl=TTL) is None
    assert subject.a.locked(key) is False
    assert subject.a.inspect(key) is None
    assert subject.a.break_lock(key) is False
    assert subject.unknown(key)


def test_c038_a_released_row_keeps_its_token(table_subject: Subject) -> None:
    key = table_subject.key()
    handle = table_subject.a.acquire(key, ttl=TTL)
    held = table_subject.stored(key)
    assert held.attempt != ""
    assert table_subject.a.release(key, owner_token=handle.owner_token) is True
    row = table_subject.stored(key)
    assert row.fencing_token == handle.fencing_token
    assert row.attempt == ""
    assert held.acquired_at <= row.expires_at <= table_subject.now()


def test_c038_the_next_token_after_a_release_is_greater(subject: Subject) -> None:
    key = subject.key()
    first = subject.a.acquire(key, ttl=TTL)
    subject.a.release(key, owner_token=first.owner_token)
    assert subject.b.acquire(key, ttl=TTL).fencing_token > first.fencing_token


@pytest.mark.parametrize("hours", [1, 24 * 365])
def test_c038_a_released_lock_stays_free_when_the_clock_steps_back(
    table_subject: Subject, hours: int
) -> None:
    # seen from a clock that was set back, the row ends in the future: it is free all the same
    key = table_subject.key()
    handle = table_subject.a.acquire(key, ttl=TTL)
    table_subject.a.release(key, owner_token=handle.owner_token)
    future = table_subject.now().replace(year=table_subject.now().year + 1 + hours // 8_760)
    table_subject.observer.set(key, expires_at=future)
    assert table_subject.b.locked(key) is False
    assert table_subject.a.release(key, owner_token=handle.owner_token) is False
    assert table_subject.a.extend(key, owner_token=handle.owner_token, ttl=TTL) is None
    again = table_subject.b.acquire(key, ttl=TTL)
    assert again.acquired is True
    assert again.fencing_token > handle.fencing_token
    assert again.expires_at < future
