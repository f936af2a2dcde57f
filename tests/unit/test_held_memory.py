"""What a held lease takes in memory: one process may hold 100,000."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Generator
from typing import Any

import pytest

from sqllocks import AsyncMemoryLockProvider, MemoryLockProvider

COUNT = 2_000
LIMIT = 2_048
"""Bytes. About 1,400 in the blocking form and 1,650 in the asyncio form, 250 of them the row in memory."""


@pytest.fixture
def traced() -> Generator[None]:
    gc.collect()
    tracemalloc.start()
    yield
    tracemalloc.stop()


def _each(before: int) -> float:
    gc.collect()
    return (tracemalloc.get_traced_memory()[0] - before) / COUNT


@pytest.mark.usefixtures("traced")
def test_a_held_lease_takes_at_most_two_kib() -> None:
    blocks: list[Any] = []
    with MemoryLockProvider() as locks:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(COUNT):
            block = locks.hold(f"held:{number}", ttl=60)
            blocks.append((block, block.__enter__()))
        each = _each(before)
        for block, _ in blocks:
            block.__exit__(None, None, None)
    assert each <= LIMIT


@pytest.mark.usefixtures("traced")
def test_a_held_lease_of_the_asyncio_form_takes_at_most_two_kib() -> None:
    async def hold() -> float:
        blocks: list[Any] = []
        async with AsyncMemoryLockProvider() as locks:
            before = tracemalloc.get_traced_memory()[0]
            for number in range(COUNT):
                block = locks.hold(f"held:{number}", ttl=60)
                blocks.append((block, await block.__aenter__()))
            each = _each(before)
            for block, _ in blocks:
                await block.__aexit__(None, None, None)
        return each

    assert asyncio.run(hold()) <= LIMIT
