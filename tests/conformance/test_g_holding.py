"""G. Blocks that hold a lease: renewed while the body runs, told of a loss, given back at its end."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from sqllocks import BackendUnavailable, LeaseLost, LockNotAcquired, LockTimeout, LockValidationError
from tests.conformance.polling import Stopwatch, until, with_time_enough
from tests.conformance.subject import Subject
from tests.faults import Relay

TTL = 0.6
"""Seconds, for leases that are lost in the course of a case; nothing may depend on one that lasts."""


class Block:
    """A hold of either form whose body is driven by the test."""

    def __init__(self, subject: Subject, manager: Any) -> None:
        self._subject = subject
        self._manager = manager

    def enter(self) -> Any:
        if self._subject.kind.asyncio:
            return self._subject.run(self._manager.__aenter__())
        return self._manager.__enter__()

    def leave(self, error: BaseException | None = None) -> Any:
        arguments = (type(error) if error else None, error, None)
        if self._subject.kind.asyncio:
            return self._subject.run(self._manager.__aexit__(*arguments))
        return self._manager.__exit__(*arguments)


def hold(subject: Subject, key: str, **options: Any) -> Block:
    return Block(subject, subject.a.provider.hold(key, **{"ttl": TTL, **options}))


def call(subject: Subject, method: Callable[..., Any], **options: Any) -> Any:
    outcome = method(**options)
    return subject.run(outcome) if subject.kind.asyncio else outcome


def test_c045_a_lease_is_renewed_past_its_ttl(subject: Subject) -> None:
    key, watch, ttl = subject.key(), Stopwatch(), 2.0  # on a busy machine a renewal may come a second late
    block = hold(subject, key, ttl=ttl)
    lease = block.enter()
    until(lambda: watch.seconds > 1.2 * ttl, within=10)
    assert subject.b.locked(key) is True
    assert lease.lost is False
    lease.check()
    assert 0 < lease.remaining <= ttl
    assert not subject.b.acquire(key, ttl=1)
    block.leave()
    assert subject.b.locked(key) is False
    with pytest.raises(LeaseLost):
        lease.check()


def test_c045_without_renewal_it_ends_with_its_ttl(subject: Subject) -> None:
    key = subject.key()
    block = hold(subject, key, renew=False)
    lease, told = block.enter(), threading.Event()
    lease.on_lost(told.set)
    assert told.wait(5)
    assert lease.lost is True
    assert lease.remaining == 0
    with pytest.raises(LeaseLost, match="held any more"):
        block.leave()


def test_c045_a_broken_lock_is_told_once_and_at_once_to_latecomers(subject: Subject) -> None:
    key, told = subject.key(), []
    block = hold(subject, key)
    lease = block.enter()
    lease.on_lost(lambda: told.append("first"))
    assert subject.b.break_lock(key) is True
    until(lambda: lease.lost, within=5)
    until(lambda: told == ["first"], within=5)
    lease.on_lost(lambda: told.append("late"))
    assert told == ["first", "late"]
    with pytest.raises(LeaseLost) as caught:
        lease.check()
    assert caught.value.details == {"lock_key": key}
    with pytest.raises(LeaseLost):
        block.leave()
    assert told == ["first", "late"]


def test_c046_an_unreachable_database_ends_the_trust_before_the_expiry(network_subject: Subject) -> None:
    def attempt(ttl: float) -> None:
        key = network_subject.key()
        with Relay(network_subject.url) as relay:
            client = network_subject.client(relay.address)
            block = Block(network_subject, client.provider.hold(key, ttl=ttl))
            lease, told = block.enter(), threading.Event()
            try:
                lease.on_lost(told.set)
                relay.lose_next_answer(then_refuse=True)
                assert told.wait(2 * ttl + 10)
                # the renewal whose answer was lost may have been carried out, so the row lasts that long
                assert network_subject.b.locked(key) is True
                assert lease.lost is True
            finally:
                with pytest.raises(LeaseLost):
                    block.leave()

    with_time_enough(attempt, (1.5, 6.0))


def test_c074_the_body_of_a_busy_lock_does_not_run(subject: Subject) -> None:
    key = subject.key()
    holder = subject.b.acquire(key, ttl=30)
    with pytest.raises(LockNotAcquired) as busy:
        hold(subject, key).enter()
    assert busy.value.details == {"lock_key": key}
    with pytest.raises(LockTimeout):
        hold(subject, key, wait=0.3).enter()
    assert subject.b.release(key, owner_token=holder.owner_token) is True


def test_c075_the_bodys_error_wins_and_the_lock_is_released(subject: Subject) -> None:
    key, error = subject.key(), ValueError("body")
    block = hold(subject, key, ttl=30)
    block.enter()
    assert not block.leave(error)
    assert subject.b.locked(key) is False
    assert not getattr(error, "__notes__", [])


def test_c075_the_bodys_error_wins_over_a_loss_which_is_noted(subject: Subject) -> None:
    key, error = subject.key(), ValueError("body")
    block = hold(subject, key)
    block.enter()
    subject.b.break_lock(key)
    assert not block.leave(error)
    assert "not held any more" in error.__notes__[0]


def test_c075_the_bodys_error_wins_over_a_release_that_fails(network_subject: Subject) -> None:
    key, error = network_subject.key(), ValueError("body")
    with Relay(network_subject.url) as relay:
        client = network_subject.client(relay.address)
        block = Block(network_subject, client.provider.hold(key, ttl=30))
        block.enter()
        relay.lose_next_answer(then_refuse=True)
        assert not block.leave(error)
        assert error.__notes__


def test_c075_a_release_that_cannot_be_settled_is_told_after_the_body(network_subject: Subject) -> None:
    key = network_subject.key()
    block = hold(network_subject, key, ttl=30)
    block.enter()
    with network_subject.observer.holding(key):
        with pytest.raises(BackendUnavailable) as caught:
            block.leave()
        assert caught.value.details["outcome"] == "pending"
        assert network_subject.b.locked(key) is True
    # the keeper goes on trying
    until(lambda: not network_subject.b.locked(key), within=5)


def test_release_and_extend_inside_the_block(subject: Subject) -> None:
    key = subject.key()
    block = hold(subject, key, ttl=5)
    lease = block.enter()
    handle = call(subject, lease.extend, ttl=20)
    assert handle.fencing_token == lease.fencing_token
    assert lease.expires_at == handle.expires_at
    assert lease.remaining > 10
    assert call(subject, lease.release) is True
    assert call(subject, lease.release) is False
    assert subject.b.locked(key) is False
    block.leave()


def test_at_least_keeps_the_key_taken(subject: Subject) -> None:
    key, watch = subject.key(), Stopwatch()
    block = hold(subject, key, ttl=5, at_least=1.5)
    lease = block.enter()
    block.leave(ValueError("even so"))
    assert subject.b.locked(key) is True
    assert subject.b.release(key, owner_token=lease.owner_token) is False
    assert not subject.b.acquire(key, ttl=1)
    later = subject.b.require_acquire(key, ttl=1, wait=5)
    assert watch.seconds >= 1.4
    assert later.fencing_token > lease.fencing_token
    with pytest.raises(LockValidationError):
        subject.a.provider.hold(key, ttl=1, at_least=2)


def test_many_are_all_or_none(subject: Subject) -> None:
    one, two, three = (subject.key(label) for label in "abc")
    handles = subject.a.call("acquire_many", [two, one, two], ttl=30)
    assert [handle.lock_key for handle in handles] == [one, two]
    assert all(handles)
    assert len({handle.owner_token for handle in handles}) == 1
    refused = subject.b.call("acquire_many", [three, two], ttl=30)
    assert [handle.acquired for handle in refused] == [False, False]
    assert subject.b.locked(three) is False
    owner = handles[0].owner_token
    assert [
        bool(each) for each in subject.a.call("extend_many", [three, one], owner_token=owner, ttl=20)
    ] == [
        True,
        False,
    ]
    assert subject.a.call("release_many", [one, two, three], owner_token=owner) == [True, True, False]
    assert subject.a.call("release_many", [one, two], owner_token=owner) == [False, False]
    for method in ("acquire_many", "extend_many", "release_many"):
        options = {} if method == "acquire_many" else {"owner_token": owner}
        if method != "release_many":
            options["ttl"] = 5
        for wrong in ([], "one", [""]):
            with pytest.raises(LockValidationError):
                subject.a.call(method, wrong, **options)


def test_holders_of_many_in_any_order_do_not_deadlock(subject: Subject) -> None:
    keys = [subject.key(label) for label in "abc"]
    clients = [subject.a, subject.b]
    done: list[int] = []

    def body(n: int) -> None:
        order = keys[n % 3 :] + keys[: n % 3]
        manager = clients[n % 2].provider.hold_many(order, ttl=10, wait=30)
        block = Block(subject, manager)
        leases = block.enter()
        assert [lease.lock_key for lease in leases] == sorted(keys)
        done.append(n)
        block.leave()

    threads = [threading.Thread(target=body, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(done) == list(range(6))
    assert not any(subject.b.locked(key) for key in keys)


def test_a_dropped_lease_is_given_back_with_a_warning(subject: Subject) -> None:
    key = subject.key()
    lease = hold(subject, key, ttl=30).enter()
    gc.collect()
    assert subject.b.locked(key) is True
    held = [lease]
    del lease
    with pytest.warns(ResourceWarning, match="neither released nor left"):
        _drop(held)
    until(lambda: not subject.b.locked(key), within=5)


def _drop(held: list[Any]) -> None:
    held.clear()
    gc.collect()


def test_closing_waits_for_the_body_and_then_gives_back(subject: Subject) -> None:
    key, client = subject.key(), subject.client() if subject.kind.table else subject.a
    block = Block(subject, client.provider.hold(key, ttl=30))
    lease = block.enter()
    closing = client.start("aclose" if subject.kind.asyncio else "close", timeout=10)
    assert subject.b.locked(key) is True
    assert not closing.done()
    block.leave()
    closing.result(5)
    assert lease.lost is False

    told: list[str] = []
    block = Block(subject, client.provider.hold(key, ttl=30))
    lease = block.enter()
    lease.on_lost(lambda: told.append("lost"))
    client.call("aclose" if subject.kind.asyncio else "close", timeout=0.2)
    assert subject.b.locked(key) is False
    assert told == ["lost"]
    with pytest.raises(LeaseLost):
        lease.check()
    with pytest.raises(LeaseLost, match="provider was closed"):
        block.leave()


def test_purge_removes_what_was_free_for_long(table_subject: Subject) -> None:
    prefix = table_subject.key("purge") + ":"
    client = table_subject.client(namespace=prefix)
    old, recent, held = "old", "recent", "held"
    for key in (old, recent):
        handle = client.acquire(key, ttl=5)
        client.release(key, owner_token=handle.owner_token)
    keeps = client.acquire(held, ttl=30)
    with pytest.raises(LockValidationError):
        client.call("purge", idle=59)
    assert client.call("purge", idle=60) == 0
    row, hour = table_subject.stored(prefix + old), timedelta(hours=1)
    table_subject.observer.set(prefix + old, expires_at=row.expires_at - hour)
    assert client.call("purge", idle=60) == 0, "its token is not as old"
    table_subject.observer.set(prefix + old, fencing_token=row.fencing_token - 3_600_000_000)
    assert client.call("purge", idle=60) == 1
    assert client.inspect(old) is None
    assert client.inspect(recent) is not None
    assert client.inspect(held) is not None
    assert client.release(held, owner_token=keeps.owner_token) is True


def test_a_forked_child_holds_nothing_and_frees_nothing(blocking_table_subject: Subject) -> None:
    key = blocking_table_subject.key()
    block = hold(blocking_table_subject, key, ttl=30)
    lease = block.enter()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            lost = lease.lost and lease.remaining == 0
            try:
                block.leave()
            except LeaseLost:
                own = blocking_table_subject.a.provider.locked(key)
                code = 0 if lost and own else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert lease.lost is False
    assert blocking_table_subject.b.locked(key) is True
    block.leave()
    assert blocking_table_subject.b.locked(key) is False


def test_keyboard_interrupt_in_the_body_releases(blocking_table_subject: Subject) -> None:
    key, watch = blocking_table_subject.key(), Stopwatch()
    with (
        pytest.raises(KeyboardInterrupt),
        blocking_table_subject.a.provider.hold(key, ttl=30),
    ):
        signal.raise_signal(signal.SIGINT)
        until(lambda: False, within=5)
    assert watch.seconds < 5
    assert blocking_table_subject.b.locked(key) is False


# -- the asyncio form cancels the body, with the care of asyncio.timeout


def test_loss_cancels_the_body_and_becomes_lease_lost(asyncio_subject: Subject) -> None:
    key, provider = asyncio_subject.key(), asyncio_subject.a.provider

    async def body() -> None:
        task = asyncio.current_task()
        assert task is not None
        with pytest.raises(LeaseLost) as lost:
            async with provider.hold(key, ttl=TTL) as lease:
                await provider.break_lock(key)
                await asyncio.Event().wait()
        assert isinstance(lost.value.__cause__, asyncio.CancelledError)
        assert lease.lost
        assert task.cancelling() == 0
        await asyncio.sleep(0)

    asyncio_subject.run(body())


def test_a_cancel_from_outside_stays_a_cancel(asyncio_subject: Subject) -> None:
    key, provider = asyncio_subject.key(), asyncio_subject.a.provider

    async def main() -> None:
        inside = asyncio.Event()

        async def body() -> None:
            async with provider.hold(key, ttl=30):
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(body())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await provider.locked(key) is False
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1), provider.hold(key, ttl=30):
                await asyncio.Event().wait()
        assert await provider.locked(key) is False

    asyncio_subject.run(main())


def test_nested_holds_and_task_groups_see_their_own_loss(asyncio_subject: Subject) -> None:
    outer, inner = asyncio_subject.key("outer"), asyncio_subject.key("inner")
    provider = asyncio_subject.a.provider

    async def main() -> list[str]:
        seen: list[str] = []
        async with provider.hold(outer, ttl=30) as kept:
            try:
                async with provider.hold(inner, ttl=TTL):
                    await provider.break_lock(inner)
                    await asyncio.Event().wait()
            except LeaseLost as lost:
                seen.append(lost.details["lock_key"])
            await asyncio.sleep(0)
            kept.check()
        try:
            async with provider.hold(outer, ttl=TTL), asyncio.TaskGroup() as group:
                group.create_task(provider.break_lock(outer))
                group.create_task(asyncio.Event().wait())
        except LeaseLost as lost:
            seen.append(lost.details["lock_key"])
        return seen

    assert asyncio_subject.run(main()) == [inner, outer]


def test_a_body_that_ends_before_its_cancellation(asyncio_subject: Subject) -> None:
    key, provider = asyncio_subject.key(), asyncio_subject.a.provider

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        with pytest.raises(LeaseLost):
            async with provider.hold(key, ttl=30) as lease:
                await provider.break_lock(key)
                lease._keeper.lose(lease._kept, "told by the test")
        assert task.cancelling() == 0
        await asyncio.sleep(0.001)

    asyncio_subject.run(main())
