"""The combining queue in both forms: a backend in front of the lock table.

The one who sends for several is never one of them: a task of its own, or a daemon thread. So a cancel or a
``KeyboardInterrupt`` in one caller leaves the others served.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextvars import Context
from functools import partial
from weakref import WeakSet

from sqllocks.backends.base import Answers, LeaseBackend, Stored
from sqllocks.core.combining import Call, Kind, Queue
from sqllocks.dialects.base import REFUSALS, Fault, FaultKind, StoredLock, Verdict, Want
from sqllocks.runtime.asynchronous import OneLoop
from sqllocks.runtime.blocking import drive
from sqllocks.runtime.kept import inherit

__all__ = ["AsyncioCombiner", "BlockingCombiner"]

logger = logging.getLogger("sqllocks")

OVERDUE = 1.0
"""Seconds without an answer after which one more statement may go beside the one that others wait for."""
MAY_DIFFER = (*REFUSALS, FaultKind.FULL, FaultKind.OTHER)
"""What fails for several together need not fail for each."""


class _Combiner(ABC):
    """What both forms share: the backend's methods, and what becomes of a batch."""

    def __init__(self, backend: LeaseBackend) -> None:
        self._backend = backend
        self.capabilities = backend.capabilities
        # a locked file is locked for each of them, and each asks again by itself
        single = backend.capabilities.single_writer
        self._alone_if = tuple(kind for kind in MAY_DIFFER if not (single and kind in REFUSALS))
        _EVERYONE.add(self)
        self.freed: Callable[[str], None] = lambda _: None
        backend.freed = self._tell

    def _tell(self, key: str) -> None:
        self.freed(key)

    async def claim(self, wants: Sequence[Want]) -> Answers:
        return await self._call(Kind.CLAIM, wants)

    async def renew(self, wants: Sequence[Want], *, values: bool = True, revive: bool = False) -> Answers:
        return await self._call(Kind.REVIVE if revive else Kind.RENEW, wants, values=values)

    async def release(self, wants: Sequence[Want]) -> Answers:
        return await self._call(Kind.RELEASE, wants)

    async def break_(self, wants: Sequence[Want]) -> Answers:
        return await self._backend.break_(wants)

    async def read(self, keys: Sequence[str]) -> Stored:
        return await self._backend.read(keys)

    def takeable(self, row: StoredLock) -> bool:
        return self._backend.takeable(row)

    async def lockers(self, key: str) -> Sequence[str]:
        return await self._backend.lockers(key)

    async def list(self, prefix: str) -> Sequence[StoredLock]:
        return await self._backend.list(prefix)

    async def purge(self, prefix: str, idle: int) -> int:
        return await self._backend.purge(prefix, idle)

    async def create_table(self) -> None:
        await self._backend.create_table()

    @abstractmethod
    def forget_parent(self) -> None:
        """In a forked child: what the parent has in flight is none of its own."""

    @abstractmethod
    async def _call(self, kind: Kind, wants: Sequence[Want], *, values: bool = True) -> Answers: ...

    async def _send(self, kind: Kind, wants: Sequence[Want], *, values: bool) -> Answers:
        if kind is Kind.CLAIM:
            return await self._backend.claim(wants)
        if kind is Kind.RELEASE:
            return await self._backend.release(wants)
        return await self._backend.renew(wants, values=values, revive=kind is Kind.REVIVE)

    async def _serve(self, batch: Sequence[Call]) -> None:
        """Send one statement for several calls, and give each its answers or its error."""
        first = batch[0]
        wants = sorted((want for call in batch for want in call.wants), key=lambda want: want.key)
        try:
            answers = await self._send(first.kind, wants, values=first.values)
            for call in batch:
                call.answers = {want.key: answers[want.key] for want in call.wants}
        except Fault as fault:
            if len(batch) == 1 or fault.kind not in self._alone_if:
                # after a lost answer nobody knows what was carried out: each caller settles that for itself
                _fail(batch, fault)
            else:
                await self._one_by_one(batch, fault)
        except Exception as error:
            _fail(batch, error)
        except BaseException:
            _fail(batch, _stopped())
            raise

    async def _one_by_one(self, batch: Sequence[Call], whole: Fault) -> None:
        """Send each call by itself, once."""
        doubt = whole.kind not in REFUSALS
        for place, call in enumerate(batch):
            try:
                call.answers = await self._send(call.kind, call.wants, values=call.values)
            except Exception as error:
                call.error = error
            except BaseException:
                _fail(batch[place:], _stopped())
                raise
            if doubt and call.kind is Kind.RELEASE and _refused(call):
                # perhaps because the first statement has freed it
                call.error = whole


class AsyncioCombiner(_Combiner):
    """The queue of the asyncio form; belongs to the event loop of its first use."""

    _loop: asyncio.AbstractEventLoop

    def __init__(self, backend: LeaseBackend, *, limit: int) -> None:
        super().__init__(backend)
        self._limit = limit
        self._home = OneLoop()
        self._reset()

    def _reset(self) -> None:
        self._queue = Queue(self._limit)
        self._aboard: dict[asyncio.Task[None], set[Call]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def forget_parent(self) -> None:
        inherit((self._queue, self._aboard, self._timer))
        self._reset()

    async def _call(self, kind: Kind, wants: Sequence[Want], *, values: bool = True) -> Answers:
        self._home.check()
        self._loop = asyncio.get_running_loop()
        queue = self._queue
        if queue.idle:
            flight = object()
            queue.start(flight, wants)
            try:
                return await self._send(kind, wants, values=values)
            finally:
                queue.finish(flight)
                self._pump()
        answered = self._loop.create_future()
        call = Call(kind, wants, values, lambda: answered.done() or answered.set_result(None))
        queue.add(call)
        try:
            self._pump()
            self._watch()
            await answered
        except BaseException:
            if not queue.drop(call):
                self._left(call)
            raise
        if call.error is not None:
            raise _own(call.error)
        return call.answers

    def _pump(self) -> None:
        if self._loop.is_closed():
            return
        while batch := self._queue.next():
            # in no caller's context: whose would it be?
            task = self._loop.create_task(self._fly(batch), name="sqllocks-sender", context=Context())
            self._aboard[task] = set(batch)
            task.add_done_callback(partial(self._ended, batch))

    async def _fly(self, batch: Sequence[Call]) -> None:
        try:
            await self._serve(batch)
        finally:
            self._land(batch)

    def _land(self, batch: Sequence[Call]) -> None:
        self._queue.finish(batch[0])
        if not self._loop.is_closed():
            for call in batch:
                call.ended()
        self._pump()

    def _ended(self, batch: Sequence[Call], task: asyncio.Task[None]) -> None:
        self._aboard.pop(task, None)
        if task.cancelled():
            # perhaps before its first step
            _fail([call for call in batch if not call.answers and call.error is None], _stopped())
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


class BlockingCombiner(_Combiner):
    """The queue of the blocking form; the sender is a daemon thread that ends when it has been idle.

    A ``KeyboardInterrupt`` can strike between any two steps of a caller, but a plain lock is always let go
    by its ``with``.
    """

    LINGER = 5.0

    def __init__(self, backend: LeaseBackend, *, limit: int) -> None:
        super().__init__(backend)
        self._limit = limit
        self._reset()

    def _reset(self) -> None:
        self._mutex = threading.Lock()
        self._some = threading.Condition(self._mutex)
        self._queue = Queue(self._limit)
        self._thread: threading.Thread | None = None
        self._lone: threading.Lock | None = None
        self._inside: set[int] = set()

    def forget_parent(self) -> None:
        inherit((self._queue, self._thread, self._some))
        self._reset()

    async def _call(self, kind: Kind, wants: Sequence[Want], *, values: bool = True) -> Answers:
        thread = threading.get_ident()
        if thread in self._inside:
            # a signal handler in the middle of a call: that one cannot go on before this one has ended
            return await self._send(kind, wants, values=values)
        self._inside.add(thread)
        try:
            flight = threading.Lock()
            with flight:
                if self._starts(flight, wants):
                    try:
                        return await self._send(kind, wants, values=values)
                    finally:
                        self._finish(flight)
            return await self._queued(kind, wants, values=values)
        finally:
            self._inside.discard(thread)

    def _starts(self, flight: threading.Lock, wants: Sequence[Want]) -> bool:
        """Return whether this caller sends by itself; it holds the lock ``flight`` until it has."""
        with self._mutex:
            self._sweep()
            if not self._queue.idle:
                return False
            self._lone = flight
            self._queue.start(flight, wants)
            return True

    def _finish(self, flight: object) -> None:
        with self._mutex:
            self._queue.finish(flight)
            if self._queue.waiting:
                self._some.notify()

    def _sweep(self) -> None:
        """Finish the flight of a caller whom an interrupt kept from doing so."""
        if self._lone is not None and not self._lone.locked():
            self._queue.finish(self._lone)
            self._lone = None

    async def _queued(self, kind: Kind, wants: Sequence[Want], *, values: bool) -> Answers:
        answered = threading.Lock()
        answered.acquire()
        call = Call(kind, wants, values, answered.release)
        try:
            with self._mutex:
                self._queue.add(call)
                flights = self._queue.flights
                sent = self._wake()
            while sent and not answered.acquire(timeout=OVERDUE):
                flights = self._overdue(flights)
        except BaseException:
            with self._mutex:
                self._queue.drop(call)
            raise
        if not sent:
            with self._mutex:
                self._queue.drop(call)
            return await self._send(kind, wants, values=values)
        if call.error is not None:
            raise _own(call.error)
        return call.answers

    def _overdue(self, flights: Sequence[object]) -> Sequence[object]:
        """Let others pass what was in flight a while ago and still is; return what is in flight now."""
        with self._mutex:
            self._sweep()
            if isinstance(self._queue.excuse(flights), Call):
                self._thread = None  # it ends when its statement does
            self._wake()
            return self._queue.flights

    def _wake(self) -> bool:
        """See to it that somebody sends; ``False`` where no thread can be started, as at the end of all."""
        if self._thread is None or not self._thread.is_alive():
            thread = threading.Thread(target=self._main, name="sqllocks-sender", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return False
            self._thread = thread
        self._some.notify()
        return True

    def _main(self) -> None:
        while batch := self._next():
            try:
                drive(self._serve(batch))
            except BaseException:
                logger.exception("a shared statement was stopped")
            self._finish(batch[0])
            for call in batch:
                call.ended()

    def _next(self) -> Sequence[Call]:
        """Wait for calls that can go; empty where this thread is not needed any longer."""
        with self._mutex:
            while self._thread is threading.current_thread():
                self._sweep()
                if batch := self._queue.next():
                    return batch
                if not self._some.wait(self.LINGER) and not self._queue.waiting:
                    self._thread = None
            self._some.notify()
            return ()


# forked children must not wait for what only a thread of the parent could end
_EVERYONE: WeakSet[_Combiner] = WeakSet()


def _forget_parent() -> None:
    for combiner in list(_EVERYONE):
        combiner.forget_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parent)


def _refused(call: Call) -> bool:
    return any(answer.verdict is Verdict.REFUSED for answer in call.answers.values())


def _stopped() -> Fault:
    return Fault(FaultKind.GONE, "the statement that was shared with others was stopped")


def _fail(batch: Sequence[Call], error: BaseException) -> None:
    for call in batch:
        call.error = error


def _own(error: BaseException) -> BaseException:
    """Return an error for one of several callers: the traceback of a shared one would grow with each."""
    if isinstance(error, Fault):
        own = Fault(error.kind, error.message, sent=error.sent)
        own.__cause__ = error.__cause__
        return own
    try:
        another = copy.copy(error)
    except Exception:
        return error
    another.__cause__ = error
    return another
