"""A wait that runs out says who holds the key, or what kept it from knowing."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from sqllocks import BackendUnavailable, LockTimeout
from tests.faults import Relay
from tests.waiting.settings import TTL, Setting, one_after_another, standing, until

LOCK = text("SELECT lock_key FROM core_locks WHERE lock_key = :key FOR UPDATE")


def blocking_url(setting: Setting) -> Any:
    """Return the address for a plain connection of the test."""
    drivers = {"postgresql": "psycopg", "sqlite": "pysqlite"}
    driver = drivers.get(setting.kind.server, "pymysql")
    return setting.url.set(drivername=f"{setting.kind.server}+{driver}")


def failures(waiting: list[Future[Any]]) -> list[BaseException]:
    """Return what each of them raised."""
    found = [future.exception(30) for future in waiting]
    assert all(found)
    return [error for error in found if error is not None]


def test_everybody_in_line_learns_who_holds_the_key(setting: Setting) -> None:
    client = setting.client()
    held = client.acquire("who", ttl=TTL)
    info = client.inspect("who")
    assert info is not None
    assert info.acquired_at is not None
    waiting = one_after_another(client, "who", 3, wait=0.3)
    errors = failures(waiting)
    for error in errors:
        assert isinstance(error, LockTimeout)
        assert info.holder in str(error)
        assert info.acquired_at.isoformat() in str(error)
        assert error.details == {"lock_key": "who"}
    assert len({id(error) for error in errors}) == 3
    client.release("who", owner_token=held.owner_token)


def test_the_holder_of_this_process_is_named_as_well(setting: Setting) -> None:
    client = setting.client()
    held = client.acquire("own", ttl=TTL)
    (first, second) = one_after_another(client, "own", 2, wait=1)
    client.release("own", owner_token=held.owner_token)
    owner = first.result(10).owner_token
    info = client.inspect("own")
    assert info is not None
    with pytest.raises(LockTimeout, match=info.holder):
        second.result(30)
    client.release("own", owner_token=owner)


def test_a_waiter_without_time_gets_an_answer_all_the_same(setting: Setting) -> None:
    client = setting.client()
    held = client.acquire("brief", ttl=TTL)
    began = time.monotonic()
    waiting = [client.start("require_acquire", "brief", ttl=TTL, wait=0.001) for _ in range(10)]
    assert all(isinstance(error, LockTimeout) for error in failures(waiting))
    assert time.monotonic() - began < 5
    client.release("brief", owner_token=held.owner_token)
    won = client.require_acquire("brief", ttl=TTL, wait=0.001)
    client.release("brief", owner_token=won.owner_token)


def test_the_session_that_keeps_the_row_is_named(network_setting: Setting) -> None:
    client = network_setting.client()
    client.acquire("pinned", ttl=0.1)
    engine = create_engine(blocking_url(network_setting))
    with engine.connect() as connection:
        assert connection.execute(LOCK, {"key": "pinned"}).all()
        with pytest.raises(LockTimeout) as caught:
            client.require_acquire("pinned", ttl=TTL, wait=0.6)
        if network_setting.kind.server == "mariadb":
            assert "an open transaction" in str(caught.value)
        else:
            own = "pg_backend_pid()" if network_setting.kind.server == "postgresql" else "connection_id()"
            number = connection.execute(text(f"SELECT {own}")).scalar_one()
            assert f"session {number} " in str(caught.value)
        waiting = one_after_another(client, "pinned", 2, wait=20)
        connection.rollback()
    for future in waiting:
        client.release("pinned", owner_token=future.result(20).owner_token)
    engine.dispose()


def test_a_server_that_goes_and_comes_back_does_not_end_a_wait(network_setting: Setting) -> None:
    holder = network_setting.client()
    owner = holder.acquire("back", ttl=TTL).owner_token
    with Relay(network_setting.url) as relay:
        waiter = network_setting.client(relay.address)
        waiting = one_after_another(waiter, "back", 2, wait=60)
        relay.lose_next_answer(then_refuse=True)
        assert relay.lost.wait(10)
        assert not any(future.done() for future in waiting)
        relay.pass_on()
        holder.release("back", owner_token=owner)
        for future in waiting:
            waiter.release("back", owner_token=future.result(30).owner_token)
        waiter.close()


def test_each_of_those_in_line_raises_the_last_error(network_setting: Setting) -> None:
    with Relay(network_setting.url) as relay:
        relay.refuse()
        waiter = network_setting.client(relay.address)
        waiting = one_after_another(waiter, "errors", 3, wait=0.5)
        errors = failures(waiting)
        assert all(isinstance(error, BackendUnavailable) for error in errors)
        assert all("errors" in str(error) for error in errors)
        assert len({id(error) for error in errors}) == 3
        until(lambda: standing(waiter.provider, "errors") == 0)
        waiter.close()
