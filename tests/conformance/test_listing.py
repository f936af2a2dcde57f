"""What people see: ``inspect``, ``list_locks``, ``break_lock``, and namespaces."""

from __future__ import annotations

from datetime import timedelta

import pytest

from sqllocks import LockValidationError
from tests.conformance.calls import TTL
from tests.conformance.subject import Subject


def test_inspect_tells_who_holds_what_since_when(subject: Subject) -> None:
    key = subject.key()
    before = subject.now()
    handle = subject.a.acquire(key, ttl=TTL)
    info = subject.b.inspect(key)
    assert info is not None
    assert (info.lock_key, info.kind, info.held) == (key, "lease", True)
    assert (info.fencing_token, info.expires_at) == (handle.fencing_token, handle.expires_at)
    assert info.acquired_at is not None
    assert before - timedelta(milliseconds=1) <= info.acquired_at <= subject.now()
    assert info.holder
    if subject.kind.table:
        assert info.holder == "worker-a"
        assert subject.stored(key).holder == "worker-a"


def test_inspect_tells_of_a_lock_that_is_over(subject: Subject) -> None:
    key = subject.key()
    handle = subject.a.acquire(key, ttl=TTL)
    subject.a.release(key, owner_token=handle.owner_token)
    info = subject.b.inspect(key)
    assert info is not None
    assert info.held is False
    expired = subject.key()
    subject.a.acquire(expired, ttl=TTL)
    subject.expire(expired)
    info = subject.b.inspect(expired)
    assert info is not None
    assert info.held is False


def test_extend_keeps_the_moment_of_the_grant(subject: Subject) -> None:
    key = subject.key()
    handle = subject.a.acquire(key, ttl=TTL)
    first = subject.a.inspect(key)
    subject.a.extend(key, owner_token=handle.owner_token, ttl=3 * TTL)
    second = subject.a.inspect(key)
    assert first is not None
    assert second is not None
    assert second.acquired_at == first.acquired_at


@pytest.mark.parametrize("marks", ["%", "_", "\\", "'", "[a]*?", "😀"])
def test_a_prefix_is_taken_as_it_stands(subject: Subject, marks: str) -> None:
    tail = subject.key("")
    prefix = f"list{marks}{tail}:"
    for key in (f"{prefix}b", f"{prefix}a", f"listx{tail}:a", f"LIST{marks}{tail}:a"):
        assert subject.a.acquire(key, ttl=TTL).acquired is True
    infos = subject.b.list_locks(prefix=prefix)
    assert sorted(info.lock_key for info in infos) == [f"{prefix}a", f"{prefix}b"]
    assert all(info.held and info.kind == "lease" for info in infos)


def test_a_namespace_keeps_applications_apart(table_subject: Subject) -> None:
    one, other = table_subject.key("one:"), table_subject.key("other:")
    first, second = table_subject.client(namespace=one), table_subject.client(namespace=other)
    handle = first.acquire("job", ttl=TTL)
    assert (handle.acquired, handle.lock_key) == (True, "job")
    assert table_subject.stored(f"{one}job").owner_token == handle.owner_token
    assert second.locked("job") is False
    assert second.acquire("job", ttl=TTL).acquired is True
    assert [info.lock_key for info in first.list_locks()] == ["job"]
    assert [info.lock_key for info in first.list_locks(prefix="j")] == ["job"]
    assert first.list_locks(prefix="x") == []
    info = first.inspect("job")
    assert info is not None
    assert info.lock_key == "job"
    longer = first.extend("job", owner_token=handle.owner_token, ttl=TTL)
    assert longer is not None
    assert longer.lock_key == "job"
    # without a namespace the whole key is the caller's
    assert table_subject.a.acquire(f"{one}job", ttl=TTL).acquired is False


def test_a_broken_lock_goes_to_the_next_with_a_greater_token(subject: Subject) -> None:
    key = subject.key()
    handle = subject.a.acquire(key, ttl=TTL)
    assert subject.b.break_lock(key) is True
    assert subject.a.locked(key) is False
    assert subject.a.extend(key, owner_token=handle.owner_token, ttl=TTL) is None
    assert subject.a.release(key, owner_token=handle.owner_token) is False
    assert subject.b.break_lock(key) is False
    again = subject.b.acquire(key, ttl=TTL)
    assert again.acquired is True
    assert again.fencing_token > handle.fencing_token


def test_breaking_an_expired_lock_is_false(subject: Subject) -> None:
    key = subject.key()
    subject.a.acquire(key, ttl=TTL)
    subject.expire(key)
    assert subject.b.break_lock(key) is False


@pytest.mark.parametrize("namespace", ["nul\x00", "n" * 256, 7, None])
def test_a_namespace_that_is_no_text_in_range_is_refused(table_subject: Subject, namespace: object) -> None:
    with pytest.raises((LockValidationError, TypeError)):
        table_subject.provider(namespace=namespace)
