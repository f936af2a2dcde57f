"""Callers on the same provider beside a case: what they do must not be seen in it."""

from __future__ import annotations

import asyncio
import os
import threading
import uuid
from types import TracebackType
from typing import Any, Self

from tests.conformance.driving import PATIENCE, Client

__all__ = ["CROWD", "Crowd", "beside"]

CROWD = 64
TTL = 60.0


def beside(module: str) -> int:
    """Return how many callers ``SQLLOCKS_BESIDE`` puts beside each case of a module: sections B to D."""
    name = module.rpartition(".")[2]
    return (
        int(os.environ.get("SQLLOCKS_BESIDE", "0"))
        if name.startswith(("test_b_", "test_c_", "test_d_"))
        else 0
    )


class Crowd:
    """Callers that take, extend and give back keys of their own until the block ends; each must succeed."""

    def __init__(self, client: Client, callers: int = CROWD) -> None:
        self._client = client
        self._callers = callers
        self._ended = threading.Event()
        self._wrong: list[object] = []
        self._rounds = 0
        self._threads: list[threading.Thread] = []
        self._work: Any = None

    def __enter__(self) -> Self:
        keys = [f"beside:{uuid.uuid4().hex[:12]}" for _ in range(self._callers)]
        if self._client.loop is not None:
            self._work = self._client.loop.start(self._tasks(keys))
            return self
        self._threads = [threading.Thread(target=self._loop, args=(key,), name="crowd") for key in keys]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._work is not None:
            self._work.result(PATIENCE)
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), "a caller hangs"
        if kind is None:
            assert not self._wrong, self._wrong[:3]
            assert self._rounds, "nobody was beside the case"

    def _loop(self, key: str) -> None:
        provider = self._client.provider
        try:
            while not self._ended.is_set():
                handle = provider.acquire(key, ttl=TTL)
                extended = provider.extend(key, owner_token=handle.owner_token, ttl=TTL)
                self._check(handle, extended, provider.release(key, owner_token=handle.owner_token))
        except BaseException as error:
            self._wrong.append(error)

    async def _tasks(self, keys: list[str]) -> None:
        async with asyncio.TaskGroup() as tasks:
            for key in keys:
                tasks.create_task(self._task(key))

    async def _task(self, key: str) -> None:
        provider = self._client.provider
        try:
            while not self._ended.is_set():
                handle = await provider.acquire(key, ttl=TTL)
                extended = await provider.extend(key, owner_token=handle.owner_token, ttl=TTL)
                self._check(handle, extended, await provider.release(key, owner_token=handle.owner_token))
        except Exception as error:
            self._wrong.append(error)

    def _check(self, handle: Any, extended: Any, released: bool) -> None:
        self._rounds += 1
        if not (handle.acquired and extended and extended.fencing_token == handle.fencing_token and released):
            self._wrong.append((handle, extended, released))
