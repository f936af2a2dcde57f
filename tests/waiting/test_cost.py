"""What waiting costs the database: connections, and statements a second."""

from __future__ import annotations

import time
from concurrent.futures import FIRST_COMPLETED, Future
from concurrent.futures import wait as wait_for
from typing import Any

import pytest

from tests.conformance.driving import Client
from tests.waiting.counting import Counter
from tests.waiting.settings import TTL, Setting, standing, until

WINDOW = 1.0
"""Seconds over which statements are counted."""
PATIENCE = 20.0
"""Seconds within which those who wait have found their pace; a starved machine lengthens their beginning."""
MOST = 25.0
"""Statements a second of a process, however many wait in it."""


def statements_a_second(counter: Counter, waiting: list[Future[Any]]) -> float:
    """Count for a while in which nobody is served."""
    before, began = counter.statements, time.monotonic()
    done, _ = wait_for(waiting, WINDOW, FIRST_COMPLETED)
    assert not done
    return (counter.statements - before) / (time.monotonic() - began)


def check_pace(counter: Counter, waiting: list[Future[Any]]) -> None:
    """Those who wait begin with quick questions, and settle for a pace that does not depend on how many.

    So the first seconds decide nothing, and neither does one in which the machine made up for a standstill.
    """
    rates: list[float] = []
    limit = time.monotonic() + PATIENCE
    while not rates or rates[-1] > MOST:
        assert time.monotonic() < limit, f"more than {MOST:g} statements a second: {rates}"
        rates.append(statements_a_second(counter, waiting))


def serve(client: Client, key: str, waiting: list[Future[Any]]) -> None:
    """Let each of them have the key and give it back."""
    left = set(waiting)
    while left:
        done, left = wait_for(left, 30, FIRST_COMPLETED)
        assert done, "nobody gets the key"
        for future in done:
            client.release(key, owner_token=future.result().owner_token)


@pytest.mark.timeout(300)
def test_a_thousand_waiters_cost_as_much_as_one(table_setting: Setting) -> None:
    count = 1000 if table_setting.kind.asyncio else 250  # as many threads as the pool has
    holder, engine = table_setting.client(), table_setting.engine()
    counter = Counter(engine)
    waiter = table_setting.client(engine)
    owner = holder.acquire("thousand", ttl=600).owner_token
    waiting = [waiter.start("require_acquire", "thousand", ttl=TTL, wait=100) for _ in range(count)]
    until(lambda: standing(waiter.provider, "thousand") == count, within=60)
    check_pace(counter, waiting)
    assert counter.most_open <= 2
    for future in waiting[1:]:
        future.cancel()
    holder.release("thousand", owner_token=owner)
    serve(waiter, "thousand", [future for future in waiting if not future.cancelled()])
    until(lambda: standing(waiter.provider, "thousand") == 0, within=60)


@pytest.mark.timeout(300)
def test_waiters_for_many_keys_look_together(polling_setting: Setting) -> None:
    count = 200
    holder, engine = polling_setting.client(), polling_setting.engine()
    counter = Counter(engine)
    waiter = polling_setting.client(engine)
    keys = [f"together:{number}" for number in range(count)]
    owner = holder.call("acquire_many", keys, ttl=600)[0].owner_token
    waiting = [waiter.start("require_acquire", key, ttl=TTL, wait=100) for key in keys]
    until(lambda: all(standing(waiter.provider, key) == 1 for key in keys), within=60)
    check_pace(counter, waiting)
    holder.call("release_many", keys, owner_token=owner)
    for key, future in zip(keys, waiting, strict=True):
        waiter.release(key, owner_token=future.result(60).owner_token)


def test_a_row_that_stays_locked_is_asked_for_no_more_often(network_setting: Setting) -> None:
    engine = network_setting.engine()
    counter = Counter(engine)
    waiter = network_setting.client(engine)
    waiter.acquire("locked", ttl=0.1)
    with network_setting.locking("locked") as unlock:
        waiting = [waiter.start("require_acquire", "locked", ttl=TTL, wait=100) for _ in range(20)]
        try:
            until(lambda: standing(waiter.provider, "locked") == 20, within=60)
            check_pace(counter, waiting)
        finally:
            unlock()  # or the end of a failed case would wait for all of them
        serve(waiter, "locked", waiting)


def test_a_free_key_costs_a_waiter_no_look(table_setting: Setting) -> None:
    engine = table_setting.engine()
    counter = Counter(engine)
    client = table_setting.client(engine)
    client.release("free", owner_token=client.acquire("free", ttl=TTL).owner_token)
    before = counter.statements
    owner = client.acquire("free", ttl=TTL).owner_token
    plain = counter.statements - before
    client.release("free", owner_token=owner)
    before = counter.statements
    owner = client.require_acquire("free", ttl=TTL, wait=10).owner_token
    assert counter.statements - before == plain
    client.release("free", owner_token=owner)
