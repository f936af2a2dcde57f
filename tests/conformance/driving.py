"""Speak to a provider in blocking style, whatever its form."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from sqllocks import LockHandle, LockInfo

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds after which an answer that did not come fails the test."""


class LoopThread:
    """One event loop on a thread of its own: every asyncio object of the suite belongs to it."""

    def __init__(self) -> None:
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="conformance-loop", daemon=True)
        self._thread.start()
        self._ready.wait()

    def _serve(self) -> None:
        with asyncio.Runner() as runner:
            runner.run(self._until_closed())

    async def _until_closed(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._closed = asyncio.Event()
        self._ready.set()
        await self._closed.wait()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin a coroutine on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine gives, or raise what it raises."""
        return self.start(work).result(PATIENCE)

    def close(self) -> None:
        """End the loop and its thread."""
        self._loop.call_soon_threadsafe(self._closed.set)
        self._thread.join(PATIENCE)


class Client:
    """A provider, asked in blocking style."""

    def __init__(self, provider: Any, *, loop: LoopThread | None, threads: ThreadPoolExecutor) -> None:
        self.provider = provider
        self.loop = loop
        self._threads = threads

    def call(self, method: str, /, *arguments: Any, **options: Any) -> Any:
        """Call any method by its name."""
        if self.loop is None:
            return getattr(self.provider, method)(*arguments, **options)
        return self.loop.run(self._awaited(method, arguments, options))

    def start(self, method: str, /, *arguments: Any, **options: Any) -> Future[Any]:
        """Begin a call beside the test's own."""
        if self.loop is None:
            return self._threads.submit(getattr(self.provider, method), *arguments, **options)
        return self.loop.start(self._awaited(method, arguments, options))

    async def _awaited(self, method: str, arguments: Sequence[Any], options: dict[str, Any]) -> Any:
        return await getattr(self.provider, method)(*arguments, **options)

    def acquire(self, lock_key: Any, *, ttl: Any, **options: Any) -> LockHandle:
        handle = self.call("acquire", lock_key, ttl=ttl, **options)
        assert isinstance(handle, LockHandle)
        return handle

    def require_acquire(self, lock_key: Any, *, ttl: Any, **options: Any) -> LockHandle:
        handle = self.call("require_acquire", lock_key, ttl=ttl, **options)
        assert isinstance(handle, LockHandle)
        return handle

    def release(self, lock_key: Any, *, owner_token: Any) -> bool:
        released = self.call("release", lock_key, owner_token=owner_token)
        assert isinstance(released, bool)
        return released

    def extend(self, lock_key: Any, *, owner_token: Any, ttl: Any) -> LockHandle | None:
        handle = self.call("extend", lock_key, owner_token=owner_token, ttl=ttl)
        assert handle is None or isinstance(handle, LockHandle)
        return handle

    def locked(self, lock_key: Any) -> bool:
        held = self.call("locked", lock_key)
        assert isinstance(held, bool)
        return held

    def inspect(self, lock_key: Any) -> LockInfo | None:
        info = self.call("inspect", lock_key)
        assert info is None or isinstance(info, LockInfo)
        return info

    def list_locks(self, **options: Any) -> list[LockInfo]:
        infos = self.call("list_locks", **options)
        assert isinstance(infos, list)
        return infos

    def break_lock(self, lock_key: Any) -> bool:
        broken = self.call("break_lock", lock_key)
        assert isinstance(broken, bool)
        return broken

    def close(self, **options: Any) -> None:
        """Close the provider."""
        self.call("close" if self.loop is None else "aclose", **options)


@dataclass(frozen=True, slots=True)
class Call:
    """One call that is to be made at the same moment as others."""

    client: Client
    method: str
    key: str
    options: dict[str, Any]


def together(calls: Sequence[Call]) -> list[Any]:
    """Make all calls at once: threads for blocking clients, tasks of one loop for asyncio ones.

    Returns for each call, in order, what it returned or the exception that it raised.
    """
    barrier = threading.Barrier(len(calls))

    def on_thread(call: Call) -> Callable[[], Any]:
        def work() -> Any:
            barrier.wait(PATIENCE)
            return call.client.call(call.method, call.key, **call.options)

        return work

    loop = calls[0].client.loop
    if loop is not None:
        return loop.run(_gathered(calls))
    with ThreadPoolExecutor(len(calls)) as threads:
        return [_outcome(future) for future in [threads.submit(on_thread(call)) for call in calls]]


async def _gathered(calls: Sequence[Call]) -> list[Any]:
    work = [getattr(call.client.provider, call.method)(call.key, **call.options) for call in calls]
    return await asyncio.gather(*work, return_exceptions=True)


def _outcome(future: Future[Any]) -> Any:
    return future.exception(PATIENCE) or future.result()
