"""G. The asyncio form of `hold` under uvloop, and among anyio's task groups and cancel scopes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import anyio
import pytest

from sqllocks import LeaseLost
from tests.conformance import test_g_holding as holding
from tests.conformance.polling import Stopwatch
from tests.conformance.subject import Subject

T = TypeVar("T")

TTL = 0.6
HELD = 30.0
PATIENCE = 20.0
needs_uvloop = pytest.mark.skipif(sys.platform == "win32", reason="there is no uvloop")
CASES: list[Callable[[Any], None]] = [
    holding.test_loss_cancels_the_body_and_becomes_lease_lost,
    holding.test_a_cancel_from_outside_stays_a_cancel,
    holding.test_nested_holds_and_task_groups_see_their_own_loss,
    holding.test_a_body_that_ends_before_its_cancellation,
]


class OnLoop:
    """A subject with a provider of its own, whose one run anyio starts, or uvloop."""

    def __init__(self, subject: Subject, *, uvloop: bool = False) -> None:
        self._uvloop = uvloop
        self.provider = subject.provider()
        self.a = self  # what the cases call the first client
        self.key = subject.key
        self.ran = ""

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a case and close the provider, on the loop that both belong to."""

        async def main() -> T:
            self.ran = type(asyncio.get_running_loop()).__module__.partition(".")[0]
            async with self.provider:
                return await asyncio.wait_for(work, PATIENCE)

        if not self._uvloop:
            return anyio.run(main)
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(main())


@needs_uvloop
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__.removeprefix("test_"))
def test_losses_and_cancellations_are_told_apart_under_uvloop(
    asyncio_subject: Subject, case: Callable[[Any], None]
) -> None:
    subject = OnLoop(asyncio_subject, uvloop=True)
    case(subject)
    assert subject.ran == "uvloop"


@pytest.mark.parametrize("uvloop", [False, pytest.param(True, marks=needs_uvloop)], ids=["anyio", "uvloop"])
def test_a_cancel_from_outside_wins_over_a_loss(asyncio_subject: Subject, uvloop: bool) -> None:
    subject = OnLoop(asyncio_subject, uvloop=uvloop)
    key = subject.key()

    async def body(inside: asyncio.Event) -> None:
        async with subject.provider.hold(key, ttl=HELD) as lease:
            task = asyncio.current_task()
            assert task is not None
            lease.on_lost(task.cancel)  # whoever cancels knows nothing of the loss
            inside.set()
            await asyncio.Event().wait()

    async def main() -> None:
        inside = asyncio.Event()
        task = asyncio.create_task(body(inside))
        await inside.wait()
        (kept,) = subject.provider._holding.keeper.kept()
        subject.provider._holding.keeper.lose(kept, "told by the test")
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()
        assert task.cancelling() == 1

    subject.run(main())


# -- what only anyio has


def test_a_scope_of_anyio_ends_the_block_and_the_lock(asyncio_subject: Subject) -> None:
    subject = OnLoop(asyncio_subject)
    key = subject.key()

    async def main() -> None:
        # such a scope cancels at each await again, those of the release among them
        with anyio.move_on_after(0.1) as scope:
            async with subject.provider.hold(key, ttl=HELD):
                await anyio.sleep_forever()
        assert scope.cancelled_caught
        await until_free(subject.provider, key)
        with pytest.raises(TimeoutError), anyio.fail_after(0.1):
            async with subject.provider.hold(key, ttl=HELD):
                await anyio.sleep_forever()
        await until_free(subject.provider, key)

    subject.run(main())


def test_a_scope_inside_the_block_leaves_the_lease_alone(asyncio_subject: Subject) -> None:
    subject = OnLoop(asyncio_subject)
    key = subject.key()

    async def main() -> None:
        async with subject.provider.hold(key, ttl=HELD) as lease:
            with anyio.move_on_after(0.05) as scope:
                await anyio.sleep_forever()
            assert scope.cancelled_caught
            lease.check()
            async with anyio.create_task_group() as group:
                group.start_soon(anyio.sleep_forever)
                group.cancel_scope.cancel()
            lease.check()
            assert await subject.provider.locked(key) is True
        assert await subject.provider.locked(key) is False

    subject.run(main())


def test_a_loss_ends_the_task_group_of_its_body_alone(asyncio_subject: Subject) -> None:
    subject = OnLoop(asyncio_subject)
    key, ended = subject.key(), []

    async def child() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("child")

    async def main() -> None:
        async with anyio.create_task_group() as outer:
            with pytest.raises(LeaseLost):
                async with subject.provider.hold(key, ttl=TTL), anyio.create_task_group() as group:
                    group.start_soon(child)
                    group.start_soon(subject.provider.break_lock, key)
            assert ended == ["child"]
            # neither this task nor the scopes around it are cancelled
            await anyio.sleep(0.001)
            assert not outer.cancel_scope.cancel_called
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    subject.run(main())


def test_a_loss_in_a_task_of_a_group_is_an_error_of_the_group(asyncio_subject: Subject) -> None:
    subject = OnLoop(asyncio_subject)
    key = subject.key()

    async def holder() -> None:
        async with subject.provider.hold(key, ttl=TTL):
            await subject.provider.break_lock(key)
            await anyio.sleep_forever()

    async def main() -> None:
        with pytest.raises(ExceptionGroup) as failed:
            async with anyio.create_task_group() as group:
                group.start_soon(holder)
                await anyio.sleep_forever()
        assert [type(error) for error in failed.value.exceptions] == [LeaseLost]

    subject.run(main())


def test_a_group_that_is_cancelled_frees_what_its_tasks_hold_or_wait_for(asyncio_subject: Subject) -> None:
    subject = OnLoop(asyncio_subject)
    key = subject.key()

    async def holder(*, task_status: anyio.abc.TaskStatus[None]) -> None:
        async with subject.provider.hold(key, ttl=HELD):
            task_status.started()
            await anyio.sleep_forever()

    async def waiter() -> None:
        async with subject.provider.hold(key, ttl=HELD, wait=None):
            raise AssertionError("it was held all the time")

    async def main() -> None:
        async with anyio.create_task_group() as group:
            await group.start(holder)
            group.start_soon(waiter)
            await anyio.sleep(0.05)
            group.cancel_scope.cancel()
        await until_free(subject.provider, key)

    subject.run(main())


async def until_free(provider: Any, key: str) -> None:
    """Wait until nobody holds the key: a release that was cancelled is carried on beside the task."""
    watch = Stopwatch()
    while await provider.locked(key):
        assert watch.seconds < 5, "the lock was left to its ttl"
        await asyncio.sleep(0.005)
