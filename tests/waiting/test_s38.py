"""S38: twenty who wait make renewals no dearer, and each is served once it is its turn."""

from __future__ import annotations

import time
from concurrent.futures import FIRST_COMPLETED, Future
from concurrent.futures import wait as wait_for
from typing import Any

from tests.conformance.driving import Client
from tests.waiting.counting import Counter
from tests.waiting.settings import TTL, Setting, standing, until

STRANGERS = 4
WAITERS = 5
RENEWALS = 300
STATISTICS = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'core_locks'"


def test_s38_twenty_waiters_beside_renewals(network_setting: Setting) -> None:
    holder = network_setting.client()
    engines = [network_setting.engine() for _ in range(STRANGERS)]
    counters = [Counter(engine) for engine in engines]
    strangers = [network_setting.client(engine) for engine in engines]
    owner = holder.acquire("s38", ttl=TTL).owner_token
    waiting: dict[Future[Any], Client] = {
        stranger.start("require_acquire", "s38", ttl=TTL, wait=100): stranger
        for stranger in strangers
        for _ in range(WAITERS)
    }
    until(lambda: sum(standing(each.provider, "s38") for each in strangers) == len(waiting), within=30)
    updates = _updates(network_setting)
    before, began = [counter.statements for counter in counters], time.monotonic()
    for _ in range(RENEWALS):
        assert holder.extend("s38", owner_token=owner, ttl=TTL) is not None
    done, _ = wait_for(waiting, max(3 - (time.monotonic() - began), 0), FIRST_COMPLETED)
    assert not done
    seconds = time.monotonic() - began
    for counter, earlier in zip(counters, before, strict=True):
        assert (counter.statements - earlier) / seconds <= 25
    if updates is not None:
        after = updates
        while after[0] < updates[0] + RENEWALS:
            assert time.monotonic() - began < 60, "the server has not counted the renewals"
            # a session that does nothing tells its counts after ten seconds, one at work after one
            assert holder.extend("s38", owner_token=owner, ttl=TTL) is not None
            after = _updates(network_setting) or updates
        assert after[1] - updates[1] >= 0.95 * (after[0] - updates[0])
    _serve(holder, owner, waiting)


def _serve(holder: Client, owner: str, waiting: dict[Future[Any], Client]) -> None:
    holder.release("s38", owner_token=owner)
    while waiting:
        done, _ = wait_for(waiting, 2, FIRST_COMPLETED)
        assert len(done) == 1, "nobody was served within 2 s, or two were"
        won = done.pop()
        waiting.pop(won).release("s38", owner_token=won.result().owner_token)


def _updates(setting: Setting) -> tuple[int, int] | None:
    if setting.kind.server != "postgresql":
        return None
    ((updates, in_page),) = setting.query(STATISTICS)
    return int(updates), int(in_page)
