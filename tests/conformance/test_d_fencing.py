"""D. Fencing tokens."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import datetime, timedelta

from sqllocks import LockHandle
from tests.conformance.calls import TTL
from tests.conformance.driving import Call, together
from tests.conformance.observing import EPOCH
from tests.conformance.processes import ProcessPool, race
from tests.conformance.subject import Subject

COLUMN_32 = 2**31 - 1


def endings(subject: Subject) -> list[Callable[[LockHandle], object]]:
    """Return the ways in which a grant may end."""
    return [
        lambda handle: subject.a.release(handle.lock_key, owner_token=handle.owner_token),
        lambda handle: subject.expire(handle.lock_key),
        lambda handle: subject.b.break_lock(handle.lock_key),
    ]


def test_c049_tokens_rise_whatever_ended_the_earlier_grants(subject: Subject) -> None:
    key = subject.key()
    tokens = []
    for turn in range(12):
        handle = (subject.a, subject.b)[turn % 2].acquire(key, ttl=TTL)
        assert handle.acquired is True
        tokens.append(handle.fencing_token)
        endings(subject)[turn % 3](handle)
        assert subject.b.locked(key) is False
    assert tokens == sorted(set(tokens))


def test_c049_tokens_rise_over_processes_that_compete(table_subject: Subject, processes: ProcessPool) -> None:
    key = table_subject.key()
    others = processes.take(table_subject, 4)
    answers = race(others, "compete", key=key, ttl=0.1, seconds=1.0)
    for answer in answers:
        assert isinstance(answer, list), answer
    grants = sorted(grant for answer in answers for grant in answer)
    assert len(grants) >= 4
    tokens = [token for _won, _given_back, token in grants]
    assert tokens == sorted(set(tokens)), "a later grant has a token that is not greater"
    for (_, given_back, _), (won, _, _) in itertools.pairwise(grants):
        assert given_back <= won, "two processes held the key at the same time"


def test_c050_refused_acquires_change_no_token(subject: Subject) -> None:
    key = subject.key()
    first = subject.a.acquire(key, ttl=TTL)
    for _ in range(3):
        assert subject.b.acquire(key, ttl=TTL).fencing_token == first.fencing_token
    together([Call(subject.b, "acquire", key, {"ttl": TTL}) for _ in range(8)])
    assert subject.b.acquire(key, ttl=TTL).fencing_token == first.fencing_token
    info = subject.a.inspect(key)
    assert info is not None
    assert info.fencing_token == first.fencing_token


def test_c051_the_later_of_two_holders_has_the_greater_token_under_racing(subject: Subject) -> None:
    key = subject.key()
    last = 0
    for turn in range(6):
        client = (subject.a, subject.b)[turn % 2]
        handles = together([Call(client, "acquire", key, {"ttl": TTL}) for _ in range(6)])
        (winner,) = [handle for handle in handles if handle]
        assert winner.fencing_token > last
        last = winner.fencing_token
        endings(subject)[turn % 3](winner)


def test_c052_extend_and_release_change_no_token(subject: Subject) -> None:
    key = subject.key()
    handle = subject.a.acquire(key, ttl=TTL)
    for ttl in (60, 10, timedelta(minutes=2)):
        longer = subject.a.extend(key, owner_token=handle.owner_token, ttl=ttl)
        assert longer is not None
        assert longer.fencing_token == handle.fencing_token
    assert subject.a.release(key, owner_token=handle.owner_token) is True
    info = subject.b.inspect(key)
    assert info is not None
    assert info.held is False
    assert info.fencing_token in {handle.fencing_token, None}
    if subject.kind.table:
        assert subject.stored(key).fencing_token == handle.fencing_token


def test_c053_a_grant_of_one_key_leaves_the_other_alone(subject: Subject) -> None:
    one, other = subject.key("one"), subject.key("other")
    first = subject.a.acquire(one, ttl=TTL)
    before = subject.snapshot(one)
    for _ in range(3):
        second = subject.b.acquire(other, ttl=TTL)
        assert second.acquired is True
        subject.b.release(other, owner_token=second.owner_token)
    assert subject.snapshot(one) == before
    assert subject.b.acquire(one, ttl=TTL).fencing_token == first.fencing_token


def test_c054_a_token_past_32_bits_goes_on(table_subject: Subject) -> None:
    key = table_subject.key()
    handle = table_subject.a.acquire(key, ttl=TTL)
    table_subject.a.release(key, owner_token=handle.owner_token)
    table_subject.observer.set(key, fencing_token=COLUMN_32)
    again = table_subject.b.acquire(key, ttl=TTL)
    assert again.acquired is True
    assert again.fencing_token > COLUMN_32
    assert table_subject.stored(key).fencing_token == again.fencing_token


def test_c054_a_token_ahead_of_the_clock_goes_on_by_one(table_subject: Subject) -> None:
    ahead = (table_subject.now() - EPOCH + timedelta(days=365)) // timedelta(microseconds=1)
    key = table_subject.key()
    table_subject.a.acquire(key, ttl=TTL)
    table_subject.observer.set(key, fencing_token=ahead)
    for step in (1, 2, 3):
        table_subject.expire(key)
        handle = table_subject.b.acquire(key, ttl=TTL)
        assert (handle.acquired, handle.fencing_token) == (True, ahead + step)


def test_c054_memory_passes_32_bits_too(memory_subject: Subject) -> None:
    moments = [EPOCH + timedelta(microseconds=COLUMN_32)]
    client = memory_subject.client(clock=lambda: moments[-1])
    key = memory_subject.key()
    tokens = []
    for _ in range(3):
        handle = client.acquire(key, ttl=1)
        assert handle.acquired is True
        tokens.append(handle.fencing_token)
        client.release(key, owner_token=handle.owner_token)
    assert tokens == [COLUMN_32, COLUMN_32 + 1, COLUMN_32 + 2]
    moments.append(datetime(2255, 1, 1, tzinfo=EPOCH.tzinfo))
    assert client.acquire(key, ttl=1).fencing_token < 2**53
