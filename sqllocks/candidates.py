"""What all electors of a form have in common: the callback of a term, and how it ends."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from sqllocks.closing import AsyncCloses, Closes
from sqllocks.core.electing import Campaign
from sqllocks.core.kept import Kept
from sqllocks.core.leases import Leases
from sqllocks.core.locking import Seat
from sqllocks.fencing import Guards, MemoryGuards
from sqllocks.model import LockInfo
from sqllocks.protocols import AsyncElector, Elector
from sqllocks.runtime.blocking import BlockingClock, drive
from sqllocks.session_lock import AsyncTerm, Term, over

__all__ = ["AsyncioCandidates", "BlockingCandidates", "check_blocking"]

logger = logging.getLogger("sqllocks")


def check_blocking(function: Callable[..., Any], instead: str) -> None:
    """Raise ``TypeError`` for a coroutine function: called here, it would never be awaited."""
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - of an object, whose class defines it
    ):
        name = getattr(function, "__qualname__", type(function).__qualname__)
        raise TypeError(f"{name}() is a coroutine function: use {instead} for it")


class BlockingCandidates(Closes, Elector):
    _campaign: Campaign
    _clock: BlockingClock
    _guards: Guards | MemoryGuards
    _on_error: Callable[[BaseException], Any] | None

    def run(
        self, key: str, on_elected: Callable[[Term], Any], *, stop: threading.Event | None = None
    ) -> None:
        check_blocking(on_elected, "an Async elector")

        async def perform(seat: Seat, kept: Kept) -> BaseException | None:
            term = Term(seat.holding, kept, self._guards, key=key, stop=stop)
            try:
                on_elected(term)
            except Exception as error:  # noqa: BLE001 - the campaign decides where it goes
                return error
            finally:
                over(term)
            return None

        async def report(error: BaseException) -> None:
            assert self._on_error is not None
            self._on_error(error)

        drive(
            self._campaign.run(
                key,
                perform,
                stopped=stop.is_set if stop is not None else None,
                on_error=report if self._on_error is not None else None,
            )
        )

    def leader(self, key: str) -> LockInfo | None:
        info = drive(self._looking().inspect(key))
        return info if info is not None and info.held else None

    def _looking(self) -> Leases:
        raise NotImplementedError


class AsyncioCandidates(AsyncCloses, AsyncElector):
    _campaign: Campaign
    _guards: Guards | MemoryGuards
    _on_error: Callable[[BaseException], Any] | None

    async def run(self, key: str, on_elected: Callable[[AsyncTerm], Awaitable[Any]]) -> None:
        async def perform(seat: Seat, kept: Kept) -> BaseException | None:
            term = AsyncTerm(seat.holding, kept, self._guards, key=key)
            task = asyncio.ensure_future(_called(on_elected, term))
            loop = asyncio.get_running_loop()

            def stop() -> None:
                loop.call_soon_threadsafe(task.cancel)

            seat.holding.on_lost(kept, stop)
            try:
                await _end_of(task, term, key)
            finally:
                over(term)
            return None if task.cancelled() else task.exception()

        async def report(error: BaseException) -> None:
            assert self._on_error is not None
            answer = self._on_error(error)
            if inspect.isawaitable(answer):
                await answer

        await self._campaign.run(key, perform, on_error=report if self._on_error is not None else None)

    async def leader(self, key: str) -> LockInfo | None:
        info = await self._looking().inspect(key)
        return info if info is not None and info.held else None

    def _looking(self) -> Leases:
        raise NotImplementedError


async def _called(on_elected: Callable[[AsyncTerm], Awaitable[Any]], term: AsyncTerm) -> None:
    await on_elected(term)


async def _end_of(task: asyncio.Future[None], term: AsyncTerm, key: str) -> None:
    """Wait for the callback; a cancel from outside reaches it first, and goes on when it has ended."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
            over(term)
            task.cancel()
    if cancelled is None:
        return
    if not task.cancelled() and (problem := task.exception()) is not None:
        logger.error("the leader of %r failed while it was stopped", key, exc_info=problem)
    raise cancelled
