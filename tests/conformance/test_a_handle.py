"""A. What an acquire hands out."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta

import pytest

from sqllocks import LockHandle, LockNotAcquired
from tests.conformance.calls import TTL
from tests.conformance.subject import Subject

FIELDS = ["acquired", "lock_key", "owner_token", "expires_at", "fencing_token"]
GRAIN = timedelta(milliseconds=1)
"""The clock of SQLite counts milliseconds."""


def test_c008_a_fresh_owner_token_each_time(subject: Subject) -> None:
    key = subject.key()
    tokens = set()
    for _ in range(20):
        handle = subject.a.acquire(key, ttl=TTL)
        assert handle.acquired
        assert 22 <= len(handle.owner_token) <= 128  # 128 bits need 22 characters of base 64
        tokens.add(handle.owner_token)
        assert subject.a.release(key, owner_token=handle.owner_token) is True
    assert len(tokens) == 20


def test_c008_the_row_has_the_fresh_owner_token(table_subject: Subject) -> None:
    key = table_subject.key()
    handle = table_subject.a.acquire(key, ttl=TTL)
    assert table_subject.stored(key).owner_token == handle.owner_token


def test_c008_a_given_owner_token_is_kept(subject: Subject) -> None:
    key = subject.key()
    assert subject.a.acquire(key, ttl=TTL, owner_token="mine").owner_token == "mine"
    if subject.kind.table:
        assert subject.stored(key).owner_token == "mine"


def test_c009_a_winner_and_a_loser_get_every_field(subject: Subject) -> None:
    key = subject.key()
    won, lost = subject.a.acquire(key, ttl=TTL), subject.b.acquire(key, ttl=TTL)
    for handle, acquired in ((won, True), (lost, False)):
        assert [field.name for field in dataclasses.fields(handle)] == FIELDS
        assert handle.acquired is acquired
        assert bool(handle) is acquired
        assert handle.lock_key == key
        assert isinstance(handle.owner_token, str)
        assert isinstance(handle.expires_at, datetime)
        assert type(handle.fencing_token) is int


def test_c010_a_handle_cannot_be_changed(subject: Subject) -> None:
    handle = subject.a.acquire(subject.key(), ttl=TTL)
    for name in FIELDS:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(handle, name, getattr(handle, name))
    assert not hasattr(handle, "__dict__")


@pytest.mark.parametrize("ttl", [0.1, 12.345678, 30 * 86_400])
def test_c011_a_win_ends_after_its_ttl(subject: Subject, ttl: float) -> None:
    before = subject.now()
    handle = subject.a.acquire(subject.key(), ttl=ttl)
    after = subject.now()
    assert handle.expires_at.utcoffset() == timedelta()
    span = timedelta(seconds=ttl)
    assert before + span - GRAIN <= handle.expires_at <= after + span + GRAIN


def test_c012_the_handle_shows_the_stored_instant(table_subject: Subject) -> None:
    for ttl in (1.0, 7.123457, 3_600.000001, 30 * 86_400):
        key = table_subject.key()
        handle = table_subject.a.acquire(key, ttl=ttl)
        assert handle.expires_at == table_subject.stored(key).expires_at
        extended = table_subject.a.extend(key, owner_token=handle.owner_token, ttl=ttl)
        assert extended is not None
        assert extended.expires_at == table_subject.stored(key).expires_at
        lost = table_subject.b.acquire(key, ttl=ttl)
        assert lost.expires_at == table_subject.stored(key).expires_at


def test_c013_a_conflict_tells_code_status_and_key(subject: Subject) -> None:
    key = subject.key()
    subject.a.acquire(key, ttl=TTL)
    with pytest.raises(LockNotAcquired) as caught:
        subject.b.require_acquire(key, ttl=TTL)
    assert (caught.value.code, caught.value.status) == ("LOCK_NOT_ACQUIRED", 409)
    assert caught.value.details == {"lock_key": key}
    assert caught.value.message in str(caught.value)


def test_c013_the_key_in_a_conflict_is_the_callers(table_subject: Subject) -> None:
    client = table_subject.client(namespace="app:")
    key = table_subject.key()
    assert isinstance(client.acquire(key, ttl=TTL), LockHandle)
    with pytest.raises(LockNotAcquired) as caught:
        client.require_acquire(key, ttl=TTL)
    assert caught.value.details == {"lock_key": key}
