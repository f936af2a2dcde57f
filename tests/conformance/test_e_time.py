"""E. Whose clock decides, and what it may look like."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime, timedelta, timezone

import pytest

from sqllocks import AsyncSqlLockProvider, SqlLockProvider
from tests.conformance.calls import TTL
from tests.conformance.polling import Stopwatch, quickly, until
from tests.conformance.processes import ProcessPool
from tests.conformance.subject import Subject, on_connect

SHIFTS = [7_200, -7_200]
GRAIN = timedelta(milliseconds=1)


@pytest.mark.parametrize("seconds", SHIFTS)
def test_c060_a_host_with_another_time_takes_no_live_lock(
    table_subject: Subject, processes: ProcessPool, seconds: int
) -> None:
    (shifted,) = processes.take(table_subject, 1, str(seconds))
    key = table_subject.key()
    handle = table_subject.a.acquire(key, ttl=TTL)
    before = table_subject.snapshot(key)
    lost = shifted.ask("call", method="acquire", arguments=(key,), ttl=TTL)
    assert lost.acquired is False
    assert (lost.expires_at, lost.fencing_token) == (handle.expires_at, handle.fencing_token)
    assert shifted.ask("call", method="locked", arguments=(key,)) is True
    assert table_subject.snapshot(key) == before
    table_subject.expire(key)
    assert shifted.ask("call", method="locked", arguments=(key,)) is False


@pytest.mark.parametrize("seconds", SHIFTS)
def test_c060_a_lock_of_a_host_with_another_time_lasts_its_ttl(
    table_subject: Subject, processes: ProcessPool, seconds: int
) -> None:
    (shifted,) = processes.take(table_subject, 1, str(seconds))
    key = table_subject.key()
    before = table_subject.now()
    handle = shifted.ask("call", method="acquire", arguments=(key,), ttl=60)
    after = table_subject.now()
    minute = timedelta(seconds=60)
    assert before + minute - GRAIN <= handle.expires_at <= after + minute + GRAIN
    assert table_subject.b.locked(key) is True
    longer = shifted.ask("call", method="extend", arguments=(key,), owner_token=handle.owner_token, ttl=0.3)
    assert longer.expires_at <= table_subject.now() + timedelta(seconds=0.3) + GRAIN
    until(lambda: not table_subject.b.locked(key), within=5)
    assert table_subject.now() >= longer.expires_at


def test_c061_memory_follows_an_injected_clock_exactly(memory_subject: Subject) -> None:
    moment = [datetime(2031, 5, 4, 3, 2, 1, 123_456, tzinfo=UTC)]
    client = memory_subject.client(clock=lambda: moment[0])
    key = memory_subject.key()
    handle = client.acquire(key, ttl=10)
    assert handle.expires_at == moment[0] + timedelta(seconds=10)
    info = client.inspect(key)
    assert info is not None
    assert info.acquired_at == moment[0]
    moment[0] = handle.expires_at - timedelta(microseconds=1)
    assert client.locked(key) is True
    assert client.acquire(key, ttl=10).acquired is False
    longer = client.extend(key, owner_token=handle.owner_token, ttl=5)
    assert longer is not None
    assert longer.expires_at == moment[0] + timedelta(seconds=5)
    moment[0] = longer.expires_at
    assert client.locked(key) is False
    assert client.extend(key, owner_token=handle.owner_token, ttl=5) is None
    assert client.release(key, owner_token=handle.owner_token) is False


def test_c025_a_lock_that_ends_at_this_very_microsecond_counts_as_free(memory_subject: Subject) -> None:
    moment = [datetime(2031, 5, 4, tzinfo=UTC)]
    client = memory_subject.client(clock=lambda: moment[0])
    key = memory_subject.key()
    first = client.acquire(key, ttl=1)
    moment[0] = first.expires_at
    assert client.locked(key) is False
    second = client.acquire(key, ttl=1)
    assert second.acquired is True
    assert second.fencing_token > first.fencing_token


@pytest.mark.parametrize("form", [SqlLockProvider, AsyncSqlLockProvider])
def test_c061_the_table_providers_tell_how_tests_control_time(form: type) -> None:
    text = (inspect.getdoc(form) or "").lower()
    assert "clock" in text
    assert "test" in text


def test_c062_a_naive_clock_is_read_as_utc(memory_subject: Subject) -> None:
    naive = datetime(2031, 5, 4, 3, 2, 1)
    client = memory_subject.client(clock=lambda: naive)
    handle = client.acquire(memory_subject.key(), ttl=10)
    assert handle.expires_at == datetime(2031, 5, 4, 3, 2, 11, tzinfo=UTC)
    assert handle.expires_at.utcoffset() == timedelta()


def test_c062_a_clock_in_another_zone_is_told_in_utc(memory_subject: Subject) -> None:
    zoned = datetime(2031, 5, 4, 3, 2, 1, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    client = memory_subject.client(clock=lambda: zoned)
    key = memory_subject.key()
    handle = client.acquire(key, ttl=10)
    assert handle.expires_at == zoned + timedelta(seconds=10)
    assert handle.expires_at.utcoffset() == timedelta()
    info = client.inspect(key)
    assert info is not None
    assert info.acquired_at is not None
    assert info.acquired_at.utcoffset() == timedelta()


def test_c062_every_instant_from_a_database_is_aware_and_utc(table_subject: Subject) -> None:
    key = table_subject.key()
    handle = table_subject.a.acquire(key, ttl=TTL)
    info = table_subject.b.inspect(key)
    assert info is not None
    for instant in (handle.expires_at, info.expires_at, info.acquired_at):
        assert instant is not None
        assert instant.utcoffset() == timedelta()
    assert info.expires_at == handle.expires_at


def test_c063_microseconds_are_kept(mysql_subject: Subject) -> None:
    fractions = set()
    for _ in range(5):
        key = mysql_subject.key()
        handle = mysql_subject.a.acquire(key, ttl=TTL)
        assert mysql_subject.stored(key).expires_at == handle.expires_at
        fractions.add(handle.expires_at.microsecond % 1_000)
    assert fractions != {0}


def test_c063_a_ttl_of_one_second_lasts_one_second(mysql_subject: Subject) -> None:
    def attempt() -> float:
        key = mysql_subject.key()
        watch = Stopwatch()
        handle = mysql_subject.a.acquire(key, ttl=1)
        answered = watch.seconds
        lasts = handle.expires_at - mysql_subject.stored(key).acquired_at
        assert abs(lasts - timedelta(seconds=1)) < timedelta(milliseconds=50)
        until(lambda: not mysql_subject.b.locked(key), within=5)
        assert mysql_subject.now() >= handle.expires_at
        assert watch.seconds >= 0.99
        return watch.seconds - answered

    quickly(attempt, within=1.2)


@pytest.mark.parametrize("zone", ["+05:30", "-11:00"])
def test_c065_the_time_zone_of_the_session_does_not_matter(network_subject: Subject, zone: str) -> None:
    engine = network_subject.engine()
    if network_subject.kind.server == "postgresql":
        on_connect(engine, f"SET TIME ZONE INTERVAL '{zone}' HOUR TO MINUTE")
    else:
        on_connect(engine, f"SET time_zone = '{zone}'")
    elsewhere = network_subject.client(engine)
    key = network_subject.key()
    before = network_subject.now()
    handle = elsewhere.acquire(key, ttl=TTL)
    after = network_subject.now()
    span = timedelta(seconds=TTL)
    assert handle.acquired is True
    assert before + span <= handle.expires_at <= after + span
    assert handle.expires_at.utcoffset() == timedelta()
    assert network_subject.stored(key).expires_at == handle.expires_at
    assert network_subject.b.locked(key) is True
    assert network_subject.b.acquire(key, ttl=TTL).expires_at == handle.expires_at
    elsewhere.release(key, owner_token=handle.owner_token)
    mine = network_subject.b.acquire(key, ttl=0.3)
    assert mine.acquired is True
    lost = elsewhere.acquire(key, ttl=TTL)
    assert (lost.acquired, lost.expires_at) == (False, mine.expires_at)
    until(lambda: not elsewhere.locked(key), within=5)
    assert network_subject.now() >= mine.expires_at
