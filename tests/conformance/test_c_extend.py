"""C. Extend and locked."""

from __future__ import annotations

from datetime import timedelta

from sqllocks import LockHandle
from tests.conformance.calls import TTL
from tests.conformance.polling import until
from tests.conformance.subject import Subject, on_connect

GRAIN = timedelta(milliseconds=1)


def extended(subject: Subject, handle: LockHandle, ttl: float | timedelta) -> LockHandle:
    """Extend a lease that is held, and check what does not change."""
    longer = subject.a.extend(handle.lock_key, owner_token=handle.owner_token, ttl=ttl)
    assert longer is not None
    assert longer.acquired is True
    assert (longer.lock_key, longer.owner_token) == (handle.lock_key, handle.owner_token)
    assert longer.fencing_token == handle.fencing_token
    return longer


def test_c039_an_extended_lock_ends_its_ttl_from_now(subject: Subject) -> None:
    key = subject.key()
    handle = subject.a.acquire(key, ttl=TTL)
    before = subject.now()
    longer = extended(subject, handle, 120)
    after = subject.now()
    span = timedelta(seconds=120)
    assert before + span - GRAIN <= longer.expires_at <= after + span + GRAIN
    seen = subject.b.acquire(key, ttl=TTL)
    assert (seen.expires_at, seen.fencing_token) == (longer.expires_at, handle.fencing_token)


def test_c039_only_the_expiry_of_the_row_changes(table_subject: Subject) -> None:
    key = table_subject.key()
    handle = table_subject.a.acquire(key, ttl=TTL)
    before = table_subject.stored(key)
    longer = extended(table_subject, handle, timedelta(minutes=5))
    after = table_subject.stored(key)
    assert after.expires_at == longer.expires_at
    assert (after.owner_token, after.attempt, after.kind) == (before.owner_token, before.attempt, before.kind)
    assert (after.fencing_token, after.acquired_at) == (before.fencing_token, before.acquired_at)
    assert (after.holder, after.server_lock) == (before.holder, before.server_lock)


def test_c040_a_shorter_ttl_moves_the_expiry_earlier(subject: Subject) -> None:
    key = subject.key()
    handle = subject.a.acquire(key, ttl=3_600)
    shorter = extended(subject, handle, 60)
    assert shorter.expires_at < handle.expires_at - timedelta(seconds=3_000)
    assert subject.b.acquire(key, ttl=TTL).expires_at == shorter.expires_at
    extended(subject, handle, 0.1)
    until(lambda: not subject.b.locked(key), within=5, what="the shortened lease to end")


def test_c041_another_cannot_extend(subject: Subject) -> None:
    key = subject.key()
    subject.a.acquire(key, ttl=TTL)
    before = subject.snapshot(key)
    assert subject.b.extend(key, owner_token="b", ttl=3_600) is None
    assert subject.snapshot(key) == before


def test_c042_an_expired_lock_is_not_revived(subject: Subject) -> None:
    key = subject.key()
    handle = subject.a.acquire(key, ttl=TTL)
    subject.expire(key)
    before = subject.snapshot(key)
    assert subject.a.extend(key, owner_token=handle.owner_token, ttl=TTL) is None
    assert subject.snapshot(key) == before
    assert subject.a.locked(key) is False


def test_c043_an_extend_after_a_takeover_leaves_the_new_holder(subject: Subject) -> None:
    key = subject.key()
    first = subject.a.acquire(key, ttl=TTL)
    subject.expire(key)
    assert subject.b.acquire(key, ttl=TTL).acquired is True
    before = subject.snapshot(key)
    assert subject.a.extend(key, owner_token=first.owner_token, ttl=3_600) is None
    assert subject.snapshot(key) == before


def test_c044_a_released_lock_cannot_be_extended(subject: Subject) -> None:
    key = subject.key()
    handle = subject.a.acquire(key, ttl=TTL)
    subject.a.release(key, owner_token=handle.owner_token)
    before = subject.snapshot(key)
    assert subject.a.extend(key, owner_token=handle.owner_token, ttl=TTL) is None
    assert subject.snapshot(key) == before
    assert subject.b.locked(key) is False


def test_c047_locked_tells_held_from_expired_and_writes_nothing(subject: Subject) -> None:
    key = subject.key()
    subject.a.acquire(key, ttl=TTL)
    held = subject.snapshot(key)
    assert subject.b.locked(key) is True
    assert subject.snapshot(key) == held
    subject.expire(key)
    expired = subject.snapshot(key)
    assert subject.b.locked(key) is False
    assert subject.snapshot(key) == expired


def test_c047_locked_works_where_nothing_can_be_written(network_subject: Subject) -> None:
    key = network_subject.key()
    network_subject.a.acquire(key, ttl=TTL)
    engine = network_subject.engine()
    scope = "SESSION CHARACTERISTICS AS" if network_subject.kind.server == "postgresql" else "SESSION"
    on_connect(engine, f"SET {scope} TRANSACTION READ ONLY")
    reader = network_subject.client(engine)
    assert reader.locked(key) is True
    network_subject.expire(key)
    assert reader.locked(key) is False
    assert reader.locked(network_subject.key()) is False


def test_c047_locked_waits_for_no_row_lock(network_subject: Subject) -> None:
    key = network_subject.key()
    network_subject.a.acquire(key, ttl=TTL)
    with network_subject.observer.holding(key):
        assert network_subject.b.start("locked", key).result(2) is True


def test_c048_anyone_may_ask_and_nobody_learns_a_token(subject: Subject) -> None:
    key = subject.key()
    handle = subject.a.acquire(key, ttl=TTL, owner_token="the-secret-owner")
    assert subject.b.locked(key) is True
    info = subject.b.inspect(key)
    assert info is not None
    assert info.held is True
    assert "the-secret-owner" not in repr(info)
    assert all("the-secret-owner" not in repr(each) for each in subject.b.list_locks(prefix=key))
    assert info.fencing_token == handle.fencing_token
