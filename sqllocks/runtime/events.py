"""What a waiter sleeps on, in either form."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Hashable
from contextlib import suppress

__all__ = ["AsyncioEvent", "BlockingEvent"]


class BlockingEvent:
    """Lets one thread sleep."""

    home: Hashable = None

    def __init__(self) -> None:
        self._flag = threading.Event()

    def set(self) -> None:
        self._flag.set()

    async def wait(self, seconds: float) -> bool:
        found = self._flag.wait(seconds)
        if found:  # not otherwise: it may have been set just now
            self._flag.clear()
        return found


class AsyncioEvent:
    """Lets one task sleep; belongs to the running loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.home: Hashable = self._loop
        self._found = False
        self._sleeper: asyncio.Future[None] | None = None

    def set(self) -> None:
        if _running_loop() is self._loop:
            self._ring()
            return
        with suppress(RuntimeError):  # the loop is closed, and its tasks with it
            self._loop.call_soon_threadsafe(self._ring)

    async def wait(self, seconds: float) -> bool:
        if not self._found:
            self._sleeper = self._loop.create_future()
            timer = self._loop.call_later(seconds, self._wake)
            try:
                await self._sleeper
            finally:
                timer.cancel()
                self._sleeper = None
        found, self._found = self._found, False
        return found

    def _ring(self) -> None:
        self._found = True
        self._wake()

    def _wake(self) -> None:
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
