"""The queue of the asyncio form, before a place that can be held back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any
from unittest import mock

import pytest

from sqllocks.core.leases import Leases
from sqllocks.dialects.base import FaultKind, Verdict
from sqllocks.errors import LockValidationError
from sqllocks.runtime import combining_asyncio
from sqllocks.runtime.asynchronous import AsyncioClock
from sqllocks.runtime.combining_asyncio import AsyncioCombiner
from tests.combining.backends import CALLER, PATIENCE, AsyncioStatements, claim_of, fault, release_of

MANY = 64
TTL = 60.0


class Stand:
    """A combiner, what is behind it, and a core in front."""

    def __init__(self) -> None:
        self.backend = AsyncioStatements()
        self.combiner = AsyncioCombiner(self.backend, limit=1)
        self.leases = Leases(AsyncioClock(), self.combiner)

    async def flying(self, key: str = "first") -> asyncio.Task[Any]:
        """Begin a claim that stays in flight until the gate is opened."""
        self.backend.gate.clear()
        task = asyncio.create_task(self.leases.acquire(key, ttl=TTL))
        await ticks(2)
        assert self.backend.sent[-1].keys == (key,)
        return task

    def acquiring(self, *keys: str) -> list[asyncio.Task[Any]]:
        return [asyncio.create_task(self.leases.acquire(key, ttl=TTL)) for key in keys]


def run(work: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(PATIENCE):
            await work

    asyncio.run(limited())


async def ticks(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


def test_a_lone_caller_sends_in_its_own_task_and_at_once() -> None:
    async def alone() -> None:
        stand = Stand()
        before = asyncio.all_tasks()
        with mock.patch.object(asyncio.get_running_loop(), "call_later", side_effect=AssertionError):
            for _ in range(3):
                await stand.combiner.claim(claim_of("k"))
                await stand.combiner.release(release_of("k"))
        assert asyncio.all_tasks() == before
        assert stand.backend.names() == ["claim", "release"] * 3

    run(alone())


def test_callers_that_arrive_during_a_statement_share_the_next_one() -> None:
    async def together() -> None:
        stand = Stand()
        first = await stand.flying()
        others = stand.acquiring(*(f"key {number}" for number in range(MANY)))
        await ticks(3)
        stand.backend.gate.set()
        handles = await asyncio.gather(first, *others)
        assert all(handles)
        assert [handle.lock_key for handle in handles[1:]] == [f"key {number}" for number in range(MANY)]
        assert len(stand.backend.sent) == 2
        assert list(stand.backend.sent[1].keys) == sorted(stand.backend.sent[1].keys)

    run(together())


def test_callers_for_one_key_are_asked_one_after_the_other_and_one_wins() -> None:
    async def contended() -> None:
        stand = Stand()
        handles = await asyncio.gather(*stand.acquiring(*["k"] * MANY))
        assert [handle.acquired for handle in handles] == [True] + [False] * (MANY - 1)
        assert all(statement.keys == ("k",) for statement in stand.backend.sent)

    run(contended())


@pytest.mark.parametrize("moment", range(12))
@pytest.mark.parametrize("flies", [False, True], ids=["in the queue", "in flight"])
def test_a_cancelled_member_leaves_the_others_served_and_holds_nothing(moment: int, flies: bool) -> None:
    async def cancelled() -> None:
        stand = Stand()
        first = await stand.flying()
        member, other, same = stand.acquiring("member", "other", "member")
        await ticks(3)
        if flies:
            stand.backend.gate.set()
        await ticks(moment)
        member.cancel()
        stand.backend.gate.set()
        results: Any = await asyncio.gather(first, member, other, same, return_exceptions=True)
        assert results[0].acquired
        assert results[2].acquired
        got = isinstance(results[1], BaseException)
        if got:
            assert isinstance(results[1], asyncio.CancelledError)
        assert await stand.leases.locked("member") is (not got or same.result().acquired)
        assert stand.combiner._queue.idle

    run(cancelled())


@pytest.mark.parametrize("moment", range(6))
def test_a_cancelled_lone_sender_leaves_the_others_served(moment: int) -> None:
    async def cancelled() -> None:
        stand = Stand()
        stand.backend.gate.clear()
        [alone] = stand.acquiring("alone")
        await ticks(moment)
        others = stand.acquiring("a", "b", "alone")
        await ticks(2)
        alone.cancel()
        stand.backend.gate.set()
        results: Any = await asyncio.gather(alone, *others, return_exceptions=True)
        assert [type(result) for result in results[:1]] == [asyncio.CancelledError]
        assert all(handle.acquired for handle in results[1:3])
        assert stand.combiner._queue.idle
        assert "a" in stand.backend.held()

    run(cancelled())


@pytest.mark.parametrize("moment", range(6))
def test_when_all_members_have_left_their_statement_ends_and_the_next_goes(moment: int) -> None:
    async def left() -> None:
        stand = Stand()
        first = await stand.flying()
        members = stand.acquiring("a", "b")
        await ticks(2)
        stand.backend.gate.set()
        await first
        stand.backend.gate.clear()
        await ticks(moment)
        for member in members:
            member.cancel()
        # nobody opens the gate for what is in flight: it is a connection that does not answer
        await ticks(12)
        stand.backend.gate.set()
        await asyncio.gather(*members, return_exceptions=True)
        [later] = stand.acquiring("later")
        assert (await later).acquired
        await stand.combiner.settle(1)
        assert stand.backend.held() == ["first", "later"]
        assert not stand.combiner._aboard

    run(left())


def test_a_sender_that_is_cancelled_by_a_stranger_leaves_its_members_served() -> None:
    async def stopped(*, begun: bool) -> None:
        stand = Stand()
        first = await stand.flying()
        members = stand.acquiring("a", "b")
        await ticks(2)
        stand.backend.gate.set()
        await first
        [sender] = stand.combiner._aboard
        await ticks(int(begun))
        sender.cancel()
        handles = await asyncio.gather(*members)
        assert all(handle.acquired for handle in handles)

    run(stopped(begun=True))
    run(stopped(begun=False))


@pytest.mark.parametrize("kind", [FaultKind.OTHER, FaultKind.CONFLICT])
def test_a_statement_that_fails_as_a_whole_is_sent_again_call_by_call(kind: FaultKind) -> None:
    async def poisoned() -> None:
        stand = Stand()
        stand.backend.fails = lambda _, keys: fault(kind) if "poison" in keys else None
        first = await stand.flying()
        calls = [asyncio.create_task(stand.combiner.claim(claim_of(key))) for key in ("a", "poison", "z")]
        await ticks(2)
        stand.backend.gate.set()
        await first
        answers: Any = await asyncio.gather(*calls, return_exceptions=True)
        good, bad, also_good = answers
        assert good["a"].verdict is also_good["z"].verdict is Verdict.DONE
        assert bad.kind is kind
        assert [len(statement.keys) for statement in stand.backend.sent] == [1, 3, 1, 1, 1]

    run(poisoned())


@pytest.mark.parametrize("kind", [FaultKind.NO_TABLE, FaultKind.READ_ONLY, FaultKind.GONE])
def test_what_no_call_is_to_blame_for_is_not_sent_again_call_by_call(kind: FaultKind) -> None:
    async def refused() -> None:
        stand = Stand()
        stand.backend.fails = lambda _, keys: fault(kind) if len(keys) > 1 else None
        first = await stand.flying()
        calls = [asyncio.create_task(stand.combiner.claim(claim_of(key))) for key in "abc"]
        await ticks(2)
        stand.backend.gate.set()
        await first
        errors = await asyncio.gather(*calls, return_exceptions=True)
        assert [getattr(error, "kind", None) for error in errors] == [kind] * 3
        assert len(stand.backend.sent) == 2

    run(refused())


@pytest.mark.parametrize("failure", [lambda: fault(FaultKind.GONE), lambda: LockValidationError("no")])
def test_each_caller_gets_an_exception_of_its_own(failure: Callable[[], BaseException]) -> None:
    async def failed() -> None:
        stand = Stand()
        stand.backend.fails = lambda _, keys: failure() if len(keys) > 1 else None
        first = await stand.flying()
        calls = [asyncio.create_task(stand.combiner.claim(claim_of(key))) for key in "abc"]
        await ticks(2)
        stand.backend.gate.set()
        await first
        errors = await asyncio.gather(*calls, return_exceptions=True)
        assert len({id(error) for error in errors}) == 3
        assert len({type(error) for error in errors}) == 1
        for error in errors:
            assert isinstance(error, BaseException)
            assert error.__cause__ is not None
            assert length(error) == length(errors[0])

    run(failed())


def length(error: Any) -> int:
    trace, steps = error.__traceback__, 0
    while trace is not None:
        trace, steps = trace.tb_next, steps + 1
    return steps


def test_a_release_whose_answer_is_in_doubt_does_not_become_a_plain_no() -> None:
    async def doubted() -> None:
        stand = Stand()
        for key in "ab":
            await stand.combiner.claim(claim_of(key))
        first = await stand.flying()
        stand.backend.carries_out = True
        stand.backend.fails = lambda name, keys: fault() if (name, len(keys)) == ("release", 2) else None
        calls = [asyncio.create_task(stand.combiner.release(release_of(key))) for key in "ab"]
        await ticks(2)
        stand.backend.gate.set()
        await first
        errors = await asyncio.gather(*calls, return_exceptions=True)
        assert [getattr(error, "kind", None) for error in errors] == [FaultKind.OTHER] * 2

    run(doubted())


def test_a_shared_statement_is_sent_in_no_callers_context() -> None:
    async def named() -> None:
        stand = Stand()
        first = await stand.flying()

        async def claim(name: str) -> str:
            CALLER.set(name)
            await stand.combiner.claim(claim_of(name))
            return CALLER.get()

        calls = [asyncio.create_task(claim(name)) for name in "abc"]
        await ticks(2)
        stand.backend.gate.set()
        await first
        assert await asyncio.gather(*calls) == ["a", "b", "c"]
        assert [statement.caller for statement in stand.backend.sent[1:]] == ["nobody"]
        assert await claim("alone") == "alone"
        assert stand.backend.sent[-1].caller == "alone"

    run(named())


@pytest.fixture
def soon_overdue() -> Iterator[None]:
    with mock.patch.object(combining_asyncio, "OVERDUE", 0.05):
        yield


@pytest.mark.usefixtures("soon_overdue")
def test_a_statement_without_an_answer_does_not_hold_up_the_callers_of_other_keys() -> None:
    async def hung() -> None:
        stand = Stand()
        stuck = asyncio.Event()

        async def take_time(_: str, keys: tuple[str, ...]) -> None:
            if "hung" in keys:
                await stuck.wait()

        with mock.patch.object(stand.backend, "_take_time", take_time):
            hanging, *others = stand.acquiring("hung", "a", "b", "hung")
            await asyncio.gather(*others[:2])
            await ticks(20)
            assert not hanging.done()
            assert not others[2].done(), "two statements for one key"
            stuck.set()
            assert (await hanging).acquired
            assert not (await others[2]).acquired

    run(hung())


def test_another_loop_is_refused_even_while_a_statement_is_in_flight() -> None:
    async def used_twice() -> None:
        stand = Stand()
        first = await stand.flying()
        found: list[BaseException] = []

        def elsewhere() -> None:
            try:
                asyncio.run(asyncio.wait_for(stand.combiner.claim(claim_of("k")), 5))
            except BaseException as error:
                found.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        await asyncio.to_thread(thread.join)
        stand.backend.gate.set()
        await first
        assert [type(error) for error in found] == [LockValidationError]

    run(used_twice())


def test_settle_waits_for_what_follows_on_what_is_in_flight() -> None:
    async def settled() -> None:
        stand = Stand()
        first = await stand.flying()
        calls = [
            asyncio.create_task(stand.combiner.claim(claim_of("k"))),
            asyncio.create_task(stand.combiner.release(release_of("k"))),
        ]
        await ticks(2)
        stand.backend.gate.set()
        await first
        await stand.combiner.settle(PATIENCE)
        assert stand.backend.names() == ["claim", "claim", "release"]
        await asyncio.gather(*calls)

    run(settled())


def test_the_end_of_a_loop_with_callers_in_flight_is_quiet(caplog: pytest.LogCaptureFixture) -> None:
    async def cut_short() -> None:
        stand = Stand()
        await stand.flying()
        stand.acquiring("a", "b", "a")
        await ticks(3)
        # the clean-up of those that are cancelled now gets its answers
        asyncio.get_running_loop().call_soon(asyncio.get_running_loop().call_soon, stand.backend.gate.set)

    asyncio.run(cut_short())
    assert [record.getMessage() for record in caplog.records if "destroyed" in record.getMessage()] == []
