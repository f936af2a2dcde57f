"""PostgreSQL tells of releases: only where somebody waits, and without a gap."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from sqllocks.core import lines
from sqllocks.dialects.postgresql_waiting import signal
from sqllocks.runtime import wakeup
from tests.conformance.driving import Client
from tests.waiting.settings import TTL, WAITED, Setting, one_after_another, standing, until


@pytest.fixture
def only_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a told waiter sleep so long that nothing but a wake-up can serve it in time."""
    monkeypatch.setattr(lines, "WAIT_CEILING", 1000.0)


def number(key: str) -> int:
    """Return a key's signal as ``pg_locks`` shows it."""
    return signal("core_locks", key) % (1 << 32)


def told(client: Client, key: str) -> bool:
    """Tell whether the head of a key sleeps until it is told."""
    found = list(client.provider._leases._waiting._lines._lines.get(key, {}).values())
    return any(line.watch is not None and line.watch.active and line._safe for line in found)


@contextmanager
def listening(setting: Setting) -> Iterator[psycopg.Connection[Any]]:
    """Listen as an onlooker."""
    address = setting.address.replace(f"+{setting.kind.driver}", "")
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("LISTEN sqllocks")
        yield connection


def test_nothing_is_sent_where_nobody_waits(told_setting: Setting) -> None:
    client = told_setting.client()
    with listening(told_setting) as onlooker:
        for _ in range(5):
            handle = client.acquire("silent", ttl=TTL)
            client.release("silent", owner_token=handle.owner_token)
        client.acquire("silent", ttl=TTL)
        client.break_lock("silent")
        assert list(onlooker.notifies(timeout=0.3)) == []


@pytest.mark.usefixtures("only_told")
@pytest.mark.parametrize("way", ["release", "break", "many"])
def test_a_waiter_is_told(told_setting: Setting, way: str) -> None:
    holder, waiter = told_setting.client(), told_setting.stranger()
    held = holder.acquire("told", ttl=TTL)
    (waiting,) = one_after_another(waiter, "told", 1, wait=60)
    until(lambda: told(waiter, "told"))
    assert told_setting.waited() == [number("told")]
    with listening(told_setting) as onlooker:
        if way == "release":
            holder.release("told", owner_token=held.owner_token)
        elif way == "break":
            holder.break_lock("told")
        else:
            others = [f"told:{each}" for each in range(100)]
            holder.call("acquire_many", others, ttl=TTL, owner_token=held.owner_token)
            holder.call("release_many", ["told", *others], owner_token=held.owner_token)
        won = waiting.result(10)
        sent = [notify.payload for notify in onlooker.notifies(timeout=0.3)]
    assert sent == ["0" if way == "many" else str(signal("core_locks", "told"))]
    waiter.release("told", owner_token=won.owner_token)


@pytest.mark.usefixtures("only_told")
def test_no_release_falls_between_registration_and_look(told_setting: Setting) -> None:
    holder, waiter = told_setting.client(), told_setting.stranger()
    # as long as some other key is waited for, the session stays and registrations are quick
    holder.acquire("other", ttl=TTL)
    (other,) = one_after_another(waiter, "other", 1, wait=60)
    until(lambda: told(waiter, "other"))
    for _ in range(60):
        owner = holder.acquire("gap", ttl=TTL).owner_token
        (waiting,) = one_after_another(waiter, "gap", 1, wait=60)
        threading.Event().wait(random.uniform(0, 0.05))  # somewhere around the registration
        holder.release("gap", owner_token=owner)
        won = waiting.result(10)
        waiter.release("gap", owner_token=won.owner_token)
    holder.break_lock("other")
    other.result(10)


def test_registrations_end_with_the_wait(told_setting: Setting) -> None:
    holder, waiter = told_setting.client(), told_setting.stranger()
    held = holder.acquire("ends", ttl=TTL)
    (granted,) = one_after_another(waiter, "ends", 1, wait=60)
    until(lambda: told(waiter, "ends"))
    holder.release("ends", owner_token=held.owner_token)
    owner = granted.result(10).owner_token
    until(lambda: told_setting.waited() == [], within=1)
    (late,) = one_after_another(waiter, "ends", 1, wait=0.5)
    until(lambda: told_setting.waited() == [number("ends")])
    assert late.exception(10) is not None
    until(lambda: told_setting.waited() == [], within=1)
    waiter.release("ends", owner_token=owner)


def test_one_session_serves_all_providers_of_an_address_and_ends_with_them(told_setting: Setting) -> None:
    holder = told_setting.stranger()
    waiters = [
        told_setting.client(),
        told_setting.client(namespace="app/"),
        told_setting.client(table="core_locks"),
    ]
    holder.acquire("one", ttl=TTL)
    holder.acquire("app/one", ttl=TTL)
    waiting = [waiter.start("require_acquire", "one", ttl=TTL, wait=60) for waiter in waiters]
    until(lambda: told_setting.waited() == sorted([number("one"), number("app/one")]))
    assert len({pid for pid, _ in told_setting.query(WAITED)}) == 1
    for key in ("app/one", "one"):
        holder.break_lock(key)
    waiting.pop(1).result(10)
    until(lambda: any(future.done() for future in waiting))
    holder.break_lock("one")
    for future in waiting:
        future.result(10)
    for waiter in waiters:
        waiter.close()
    assert not any(thread.name == "sqllocks-listener" for thread in threading.enumerate())


def test_the_session_ends_soon_after_the_last_waiter(
    told_setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeup, "LINGER", 0.2)
    holder, waiter = told_setting.client(), told_setting.stranger()
    owner = holder.acquire("linger", ttl=TTL).owner_token
    for _ in range(2):  # it can come again
        (waiting,) = one_after_another(waiter, "linger", 1, wait=60)
        until(lambda: told_setting.waited() == [number("linger")])
        listeners = told_setting.query(WAITED)
        holder.release("linger", owner_token=owner)
        owner = waiting.result(10).owner_token
        waiter.release("linger", owner_token=owner)
        owner = holder.acquire("linger", ttl=TTL).owner_token
        pid = listeners[0][0]
        until(lambda pid=pid: not told_setting.query(f"SELECT 1 FROM pg_stat_activity WHERE pid = {pid}"))  # type: ignore[misc]
    holder.release("linger", owner_token=owner)


def test_waiters_outlive_the_session(
    told_setting: Setting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(wakeup, "FIRST_BACKOFF", 0.01)
    holder, waiter = told_setting.client(), told_setting.stranger()
    owner = holder.acquire("outlive", ttl=TTL).owner_token
    waiting = one_after_another(waiter, "outlive", 2, wait=60)
    until(lambda: told(waiter, "outlive"))
    ((pid, _),) = told_setting.query(WAITED)
    with caplog.at_level(logging.WARNING, "sqllocks"):
        told_setting.query(f"SELECT pg_terminate_backend({pid})")
        until(lambda: not told(waiter, "outlive"))
        holder.release("outlive", owner_token=owner)
        owner = waiting[0].result(10).owner_token
    assert "no session listens for releases" in caplog.text
    until(lambda: [each for each, _ in told_setting.query(WAITED)] not in ([], [pid]), what="another session")
    until(lambda: told(waiter, "outlive"))
    waiter.release("outlive", owner_token=owner)
    waiter.release("outlive", owner_token=waiting[1].result(10).owner_token)


def test_more_keys_than_are_registered_are_served_all_the_same(
    told_setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeup, "MOST_WATCHED", 3)
    holder, waiter = told_setting.client(), told_setting.stranger()
    keys = [f"more:{each}" for each in range(6)]
    held = {key: holder.acquire(key, ttl=TTL) for key in keys}
    waiting = {key: one_after_another(waiter, key, 1, wait=60)[0] for key in keys}
    until(lambda: len(told_setting.waited()) == 3)
    for key in keys:
        holder.release(key, owner_token=held[key].owner_token)
        waiter.release(key, owner_token=waiting[key].result(10).owner_token)
    assert [standing(waiter.provider, key) for key in keys] == [0] * 6


def test_anything_may_arrive_on_the_channel(told_setting: Setting) -> None:
    holder, waiter = told_setting.client(), told_setting.stranger()
    owner = holder.acquire("noise", ttl=TTL).owner_token
    (waiting,) = one_after_another(waiter, "noise", 1, wait=60)
    until(lambda: told(waiter, "noise"))
    for payload in ("", "x", "99999999999999999999", "0", str(signal("core_locks", "noise")), "-1"):
        told_setting.query(f"SELECT pg_notify('sqllocks', '{payload}')")
    assert not waiting.done()
    holder.release("noise", owner_token=owner)
    waiter.release("noise", owner_token=waiting.result(10).owner_token)
