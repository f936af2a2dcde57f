"""First come, first served in one process; nobody is forgotten."""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future
from concurrent.futures import wait as wait_for
from typing import Any

import pytest

from sqllocks import LockTimeout
from tests.waiting.settings import TTL, Setting, one_after_another, standing, until


def test_they_get_the_key_in_the_order_in_which_they_came(setting: Setting) -> None:
    client = setting.client()
    owner = client.acquire("order", ttl=TTL).owner_token
    waiting = one_after_another(client, "order", 6, wait=60)
    for number, future in enumerate(waiting):
        client.release("order", owner_token=owner)
        owner = future.result(30).owner_token
        assert not any(later.done() for later in waiting[number + 1 :])
    client.release("order", owner_token=owner)
    assert standing(client.provider, "order") == 0


def test_two_providers_of_one_table_share_a_line(table_setting: Setting) -> None:
    first, second = table_setting.client(), table_setting.client()
    owner = first.acquire("shared", ttl=TTL).owner_token
    (ahead,) = one_after_another(second, "shared", 1, wait=60)
    (behind,) = one_after_another(first, "shared", 1, wait=60)
    first.release("shared", owner_token=owner)
    owner = ahead.result(30).owner_token
    assert not behind.done()
    second.release("shared", owner_token=owner)
    first.release("shared", owner_token=behind.result(30).owner_token)


def test_who_times_out_does_not_hold_up_the_others(setting: Setting) -> None:
    client = setting.client()
    owner = client.acquire("gaps", ttl=TTL).owner_token
    impatient = one_after_another(client, "gaps", 2, wait=0.2)
    (second,) = one_after_another(client, "gaps", 1, wait=60)
    impatient += one_after_another(client, "gaps", 1, wait=0.2)
    (last,) = one_after_another(client, "gaps", 1, wait=60)
    for future in impatient:
        with pytest.raises(LockTimeout):
            future.result(30)
    assert standing(client.provider, "gaps") == 2
    for future in (second, last):
        client.release("gaps", owner_token=owner)
        owner = future.result(30).owner_token
    client.release("gaps", owner_token=owner)
    assert standing(client.provider, "gaps") == 0


def test_a_hundred_are_all_served(setting: Setting) -> None:
    client = setting.client()
    held = client.acquire("hundred", ttl=TTL)
    owner, tokens = held.owner_token, [held.fencing_token]
    waiting: set[Future[Any]] = {
        client.start("require_acquire", "hundred", ttl=TTL, wait=100) for _ in range(100)
    }
    until(lambda: standing(client.provider, "hundred") == 100, within=30)
    while waiting:
        client.release("hundred", owner_token=owner)
        done, waiting = wait_for(waiting, 30, FIRST_COMPLETED)
        assert len(done) == 1, "nobody has the key, or two have it"
        won = done.pop().result()
        owner = won.owner_token
        tokens.append(won.fencing_token)
    client.release("hundred", owner_token=owner)
    assert tokens == sorted(set(tokens))


def test_waiters_for_a_key_held_by_a_stranger_are_served(table_setting: Setting) -> None:
    holder, waiter = table_setting.client(), table_setting.stranger()
    owner = holder.acquire("stranger", ttl=TTL).owner_token
    waiting = one_after_another(waiter, "stranger", 3, wait=60)
    holder.release("stranger", owner_token=owner)
    for future in waiting:
        waiter.release("stranger", owner_token=future.result(30).owner_token)


def test_several_keys_have_lines_of_their_own(setting: Setting) -> None:
    client = setting.client()
    keys = [f"keys:{number}" for number in range(20)]
    held = {key: client.acquire(key, ttl=TTL) for key in keys}
    waiting = {key: client.start("require_acquire", key, ttl=TTL, wait=60) for key in keys}
    for key in reversed(keys):
        client.release(key, owner_token=held[key].owner_token)
    for key in keys:
        client.release(key, owner_token=waiting[key].result(30).owner_token)
