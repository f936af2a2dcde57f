"""The combining queue of the asyncio form.

The one who sends for several is a task of its own, so that a cancel in one caller leaves the others served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import Context
from functools import partial
from typing import Any

from sqllocks.backends.base import Answers, LeaseBackend
from sqllocks.core.combining import Call, Kind, Queue
from sqllocks.dialects.base import Want
from sqllocks.runtime.asynchronous import OneLoop
from sqllocks.runtime.combining import OVERDUE, Combiner, fail, own, stopped
from sqllocks.runtime.kept import inherit

__all__ = ["AsyncioCombiner"]


class AsyncioCombiner(Combiner):
    """The queue of the asyncio form; belongs to the event loop of its first use."""

    def __init__(self, backend: LeaseBackend, *, limit: int) -> None:
        super().__init__(backend)
        self._limit = limit
        self._home = OneLoop()
        self._loop: Any = None
        self._reset()

    def _reset(self) -> None:
        self._queue = Queue(self._limit)
        self._aboard: dict[asyncio.Task[None], set[Call]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._gathering = False

    def forget_parent(self) -> None:
        inherit((self._queue, self._aboard, self._timer))
        self._reset()

    async def _call(self, kind: Kind, wants: Sequence[Want], *, values: bool = True) -> Answers:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._home.check()
            self._loop = loop
        queue = self._queue
        if queue.idle and not self._gathering:
            flight = object()
            queue.start(flight, wants)
            try:
                return await self._send(kind, wants, values=values)
            finally:
                queue.finish(flight)
                if queue.waiting:
                    self._pump()
        answered = loop.create_future()
        call = Call(kind, wants, values, answered)
        queue.add(call)
        try:
            if not self._gathering:
                self._pump()
            if self._timer is None:
                self._watch()
            await answered
        except BaseException:
            if not queue.drop(call):
                self._left(call)
            raise
        if call.error is not None:
            raise own(call.error)
        return call.answers or {}

    def _pump(self) -> None:
        if self._loop.is_closed():
            return
        while batch := self._queue.next():
            # in no caller's context: whose would it be?
            task = self._loop.create_task(self._fly(batch), name="sqllocks-sender", context=Context())
            self._aboard[task] = set(batch)
            task.add_done_callback(partial(self._ended, batch))

    def _gathered(self) -> None:
        self._gathering = False
        self._pump()

    async def _fly(self, batch: Sequence[Call]) -> None:
        try:
            await self._serve(batch)
        finally:
            self._land(batch)

    def _land(self, batch: Sequence[Call]) -> None:
        self._queue.finish(batch[0])
        if self._loop.is_closed():
            return
        for call in batch:
            if not call.caller.done():
                call.caller.set_result(None)
        if not self._gathering:
            # those who were just answered have their turn first: what they ask for next goes together
            self._gathering = True
            self._loop.call_soon(self._gathered)

    def _ended(self, batch: Sequence[Call], task: asyncio.Task[None]) -> None:
        self._aboard.pop(task, None)
        if task.cancelled():
            # perhaps before its first step
            fail([call for call in batch if not call.answers and call.error is None], stopped())
            self._land(batch)

    def _left(self, call: Call) -> None:
        """End a statement that nobody waits for any more: its connection may be dead."""
        for task, calls in self._aboard.items():
            if call in calls:
                calls.discard(call)
                if not calls:
                    task.cancel()
                return

    def _watch(self) -> None:
        if self._timer is None and self._queue.waiting:
            self._timer = self._loop.call_later(OVERDUE, self._overdue, self._queue.flights)

    def _overdue(self, flights: Sequence[object]) -> None:
        self._timer = None
        self._queue.excuse(flights)
        self._pump()
        self._watch()

    async def settle(self, timeout: float | None) -> None:
        """Wait for what is in flight although nobody waits for it any more."""
        loop = asyncio.get_running_loop()
        end = None if timeout is None else loop.time() + timeout
        while self._aboard and (end is None or loop.time() < end):
            await asyncio.wait(list(self._aboard), timeout=None if end is None else end - loop.time())
