"""S36. One renewal that fails is a hiccup; an event loop that is blocked past the ttl is a loss."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any

import pytest

from sqllocks import AsyncSqlLockProvider
from tests.conformance.kinds import Kind
from tests.conformance.polling import until
from tests.faults.relay import Relay
from tests.scenarios import hiccups, jobs
from tests.scenarios.arena import SERVERS, Arena

HICCUP_TTL = 3.0
TTL = 2.0
BLOCKED = 3.5
PATIENCE = 20.0


async def renewed_in_spite_of_a_lost_answer(arena: Arena, kind: Kind) -> None:
    """Hold a key through a relay that loses the answer to one renewal."""
    key, losses = arena.key(kind.driver), []
    with Relay(kind.url(arena.url)) as relay:
        async with (
            asyncio.timeout(PATIENCE),
            AsyncSqlLockProvider(relay.address) as locks,
            locks.hold(key, ttl=HICCUP_TTL) as lease,
        ):
            lease.on_lost(lambda: losses.append(kind))
            relay.lose_next_answer()
            await asyncio.to_thread(until, relay.lost.is_set, within=PATIENCE)
            before = lease.expires_at
            # what was answered before the loss is what is still believed
            assert lease.remaining < HICCUP_TTL
            await asyncio.to_thread(until, lambda: lease.expires_at > before, within=PATIENCE)
            assert not lease.lost
            lease.check()
            row = arena.observer.stored(key)
            assert row is not None
            assert (row.fencing_token, row.owner_token) == (lease.fencing_token, lease.owner_token)
            assert lease.expires_at <= row.expires_at, "belief ran ahead of what is stored"
    assert losses == []


@pytest.mark.parametrize("server", SERVERS[:3])
def test_s36_one_renewal_that_fails_loses_nothing(arena: Arena, server: str) -> None:
    kinds = [kind for kind in arena.kinds if kind.asyncio]

    async def all_at_once() -> None:
        await asyncio.gather(*(renewed_in_spite_of_a_lost_answer(arena, kind) for kind in kinds))

    jobs.clients.loop.run(all_at_once())


@pytest.mark.parametrize("server", SERVERS)
def test_s36_a_blocked_event_loop_is_taken_over_and_told_before_its_next_step(
    arena: Arena, server: str
) -> None:
    targets = [arena.target(kind) for kind in arena.kinds if kind.asyncio]
    keys = [arena.key("blocked") for _ in targets]
    pending = [
        worker.start(hiccups.block_the_loop, target, key, ttl=TTL, seconds=BLOCKED)
        for worker, target, key in zip(arena.workers(targets), targets, keys, strict=True)
    ]
    for key in keys:
        until(lambda key=key: arena.client.locked(key), within=PATIENCE)  # type: ignore[misc]
    waiting: list[Future[Any]] = [
        arena.client.start("require_acquire", key, ttl=60, wait=PATIENCE) for key in keys
    ]
    handles = [future.result(PATIENCE) for future in waiting]
    assert not any(blocked.done for blocked in pending), "they were taken over while the loops stood still"
    for handle, blocked in zip(handles, pending, strict=True):
        report = blocked.result()
        assert handle.fencing_token > report.token
        assert report.lost_at_once
        assert (report.steps, report.losses, report.ended) == (0, 1, "LeaseLost")
        assert (report.stale, report.extended) == ("StaleFencingToken", False)
        assert arena.client.release(handle.lock_key, owner_token=handle.owner_token) is True
