"""Waiting for several keys: those who are in each other's way get through, one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from sqllocks import LockTimeout
from sqllocks.backends.base import Answers, Stored
from sqllocks.backends.memory import MemoryLeases
from sqllocks.core.leases import Leases
from sqllocks.core.lines import Lines
from sqllocks.dialects.base import Answer, Verdict, Want
from sqllocks.runtime.asynchronous import AsyncioClock
from tests.waiting.settings import PATIENCE, TTL, async_until

LIMIT = 1000
"""Claims after which those who wait are taken to go on for ever."""


class Steady(MemoryLeases):
    """Memory that takes two turns of the loop for everything, as a server takes its time: always the same."""

    def __init__(self) -> None:
        super().__init__()
        self.claims = 0

    async def claim(self, wants: Sequence[Want]) -> Answers:
        self.claims += 1
        assert self.claims < LIMIT, "they go on for ever"
        await asyncio.sleep(0)
        answers = await super().claim(wants)
        await asyncio.sleep(0)
        return answers

    async def release(self, wants: Sequence[Want]) -> Answers:
        await asyncio.sleep(0)
        answers = await super().release(wants)
        await asyncio.sleep(0)
        return answers

    async def read(self, keys: Sequence[str]) -> Stored:
        await asyncio.sleep(0)
        rows = await super().read(keys)
        await asyncio.sleep(0)
        return rows


class Greedy(Steady):
    """Memory where somebody takes whatever else is wanted by one who has a key already."""

    async def claim(self, wants: Sequence[Want]) -> Answers:
        taken = any(row.held for row in await self.list(""))
        answers = await super().claim(wants)
        if taken or len(wants) > 1:
            await super().release([want._replace(ttl=0) for want in wants])
            return {
                key: Answer(Verdict.REFUSED, each.token, each.expires_at) for key, each in answers.items()
            }
        return answers


class Stage:
    """One provider; several on one memory are like processes, each told of every release."""

    def __init__(self, backend: Steady) -> None:
        self.backend = backend
        self.lines = Lines()
        before = backend.freed
        self.leases = Leases(AsyncioClock(), backend, lines=self.lines)

        def freed(key: str) -> None:
            before(key)
            self.lines.freed(key)

        backend.freed = freed

    async def hold(self, *keys: str, wait: float | None = None) -> None:
        """Take keys, and give them back at once."""
        grants = await self.leases.grant_many(self.leases.names.wants(keys, TTL, None), wait)
        assert sorted(grant.handle.lock_key for grant in grants) == sorted(keys)
        assert all(grant.acquired for grant in grants)
        await self.leases.releases.release_all([grant.want._replace(ttl=0) for grant in grants])

    def standing(self, key: str) -> int:
        """Return how many stand in line for a key."""
        return sum(len(line.waiters) for line in self.lines._lines.get(key, {}).values())

    async def stand(self, key: str, *keys: str) -> asyncio.Task[None]:
        """Begin to hold keys of which this one is busy; return when that stands in its line."""
        before = self.standing(key)
        task = asyncio.create_task(self.hold(*keys))
        await async_until(lambda: self.standing(key) > before or task.done())
        return task

    async def taken(self) -> list[str]:
        """Return the keys that are held."""
        return [row.key for row in await self.backend.list("") if row.held]


def test_two_in_step_that_have_a_key_each_do_not_go_on_for_ever() -> None:
    async def main() -> None:
        backend = Steady()
        stage, abroad = Stage(backend), Stage(backend)
        leases = stage.leases
        await leases.acquire("b", ttl=TTL, owner_token="somebody")
        one = await stage.stand("b", "a", "b")
        await leases.acquire("a", ttl=TTL, owner_token="somebody")
        other = await abroad.stand("a", "a", "b")
        # both are told at the same moment, and each gets the key that it stands in line for
        await leases.release_many(["a", "b"], owner_token="somebody")
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(one, other)
        assert await stage.taken() == []

    asyncio.run(main())


def test_three_that_want_two_keys_each_in_a_circle_get_through() -> None:
    async def main() -> None:
        backend = Steady()
        stages = [Stage(backend) for _ in range(3)]
        leases = stages[0].leases
        await leases.acquire_many(["a", "b", "c"], ttl=TTL, owner_token="somebody")
        wanted = zip(stages, ("ab", "bc", "ac"), strict=True)
        tasks = [await stage.stand(keys[0], *keys) for stage, keys in wanted for _ in range(3)]
        await leases.release_many(["a", "b", "c"], owner_token="somebody")
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*tasks)
        assert await stages[0].taken() == []

    asyncio.run(main())


def test_the_wait_ends_with_its_time_although_one_of_the_keys_is_free_again_and_again() -> None:
    async def main() -> None:
        stage = Stage(Greedy())
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(LockTimeout, match=r"still held after a wait of 0\.2 s"):
                await stage.hold("a", "b", wait=0.2)
        assert await stage.taken() == []

    asyncio.run(main())


def test_who_got_the_first_key_gives_it_back_while_another_one_stays_held() -> None:
    async def main() -> None:
        stage = Stage(Steady())
        leases = stage.leases
        await leases.acquire_many(["a", "b"], ttl=TTL, owner_token="somebody")
        task = await stage.stand("a", "a", "b")
        await leases.release("a", owner_token="somebody")
        await async_until(lambda: list(stage.lines._lines) == ["b"])
        assert await stage.taken() == ["b"]
        assert stage.backend.claims < 10, "to insist costs a few claims"
        await leases.release("b", owner_token="somebody")
        async with asyncio.timeout(PATIENCE):
            await task

    asyncio.run(main())


def test_one_who_comes_back_does_not_pass_those_who_wait() -> None:
    async def main() -> None:
        stage = Stage(Steady())
        got: list[int] = []

        async def work(number: int) -> None:
            for _ in range(3):
                await stage.hold("a", "b")
                got.append(number)

        await stage.leases.acquire("b", ttl=TTL, owner_token="somebody")
        tasks = [asyncio.create_task(work(number)) for number in range(3)]
        await async_until(lambda: stage.standing("b") == 3)
        await stage.leases.release("b", owner_token="somebody")
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*tasks)
        assert got == [*got[:3]] * 3

    asyncio.run(main())
