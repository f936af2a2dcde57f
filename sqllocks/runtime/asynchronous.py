"""The asyncio port: the core awaits on the caller's event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from sqllocks.errors import LockValidationError
from sqllocks.runtime import clock
from sqllocks.runtime.events import AsyncioEvent

__all__ = ["AsyncioBackground", "AsyncioClock", "OneLoop"]

T = TypeVar("T")

logger = logging.getLogger("sqllocks")

RESTART_PAUSE = 0.1
LONGEST_PAUSE = 3600.0

UNDO_PATIENCE = 2.0
"""Seconds a cancelled caller waits for the clean-up; after that it goes on in the background."""


class OneLoop:
    """Ties an object to the event loop of its first use."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def check(self) -> None:
        """Raise ``LockValidationError`` on another loop than that of the first call."""
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise LockValidationError(
                "this object belongs to the event loop of its first use and was called on another one; make "
                "one per loop"
            )


class AsyncioClock:
    """Local time and waiting of the asyncio form."""

    def __init__(self) -> None:
        self._background: set[asyncio.Task[Any]] = set()

    def now(self) -> float:
        return clock.now()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def event(self) -> AsyncioEvent:
        return AsyncioEvent()

    def alarm(self, seconds: float, ring: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, ring)

    async def shielded(self, work: Coroutine[Any, Any, T]) -> T | None:
        task = self.spawn(work)
        await self.joined(task)
        return task.result() if task.done() else None

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a clean-up that a shutdown waits for; raises ``RuntimeError`` without a running loop."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def joined(self, task: asyncio.Task[Any]) -> None:
        """Wait for a clean-up, but not for ever; a cancel of the waiting one does not reach it."""
        await asyncio.wait({task}, timeout=UNDO_PATIENCE)

    async def settle(self, timeout: float | None) -> None:
        """Wait for clean-ups that go on in the background."""
        if self._background:
            await asyncio.wait(self._background, timeout=timeout)


class AsyncioBackground:
    """One task on the loop, started when there is something to do."""

    linger = 0.0

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._event = asyncio.Event()

    def ensure(self, run: Callable[[], Coroutine[Any, Any, None]], busy: Callable[[], bool]) -> None:
        if self._task is None or self._task.done():
            self._loop = asyncio.get_running_loop()
            self._task = self._loop.create_task(self._main(run, busy), name="sqllocks-keeper")

    def wake(self) -> None:
        # also called by a finalizer, which may run in any thread
        with suppress(RuntimeError):
            if self._loop is asyncio.get_running_loop():
                self._event.set()  # without the system call that wakes a loop from outside
                return
        with suppress(RuntimeError):  # the loop is closed
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._event.set)

    async def pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(min(seconds, LONGEST_PAUSE)):
                await self._event.wait()
        self._event.clear()

    async def stop(self) -> None:
        """End the task; it has nothing left to do, or its time is over."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            self._task = None

    async def _main(self, run: Callable[[], Coroutine[Any, Any, None]], busy: Callable[[], bool]) -> None:
        while True:
            try:
                await run()
            except Exception:
                logger.exception("the keeper of leases failed and starts again")
                await asyncio.sleep(RESTART_PAUSE)
            if not busy():
                return
