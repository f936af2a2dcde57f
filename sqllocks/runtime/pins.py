"""Clean-ups at the end of the application's transactions, in the form that a provider runs in."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from sqlalchemy.exc import MissingGreenlet

from sqllocks.core.guard import Ending
from sqllocks.core.pinning import Pinning
from sqllocks.runtime.asynchronous import AsyncioClock
from sqllocks.runtime.transactions import ENDED_ON

__all__ = ["Finish", "FormPins", "asyncio_finish"]

logger = logging.getLogger("sqllocks")

Finish = Callable[[Coroutine[Any, Any, None]], object]
"""Runs a clean-up before ``commit()`` returns, or in the background where that cannot be."""


class FormPins:
    """The pinned leases of one provider, told by the guards."""

    def __init__(self, pinning: Pinning, finish: Finish) -> None:
        self._pinning = pinning
        self._finish = finish

    def pinned(self, key: str, owner: str, token: int) -> None:
        self._pinning.pinned(key, owner, token)

    def unpinned(self, key: str, owner: str, token: int, ending: Ending) -> None:
        self._finish(self._pinning.unpinned(key, owner, token))


def asyncio_finish(clock: AsyncioClock) -> Finish:
    """Return how the asyncio form finishes: in a task that ``commit()`` awaits, and ``aclose`` too."""

    def finish(work: Coroutine[Any, Any, None]) -> None:
        try:
            task = clock.spawn(work)
        except RuntimeError:  # the loop is gone: a connection is closed by the garbage collector
            work.close()
            logger.warning("a transaction ended after its event loop; what it held lasts until its ttl")
            return
        run_async = getattr(ENDED_ON.get(), "run_async", None)
        if run_async is not None:
            try:
                run_async(partial(_joined, clock, task))
            except MissingGreenlet:  # closed outside of an await: the task goes on by itself
                return

    return finish


async def _joined(clock: AsyncioClock, task: asyncio.Task[None], _driver_connection: Any) -> None:
    await clock.joined(task)
