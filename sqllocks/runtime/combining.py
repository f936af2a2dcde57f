"""The combining queue in both forms: a backend in front of the lock table.

The one who sends for several is never one of them: a task of its own, or a daemon thread. So a cancel or a
``KeyboardInterrupt`` in one caller leaves the others served.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from sqllocks.backends.base import Answers, LeaseBackend, Stored
from sqllocks.core.combining import Call, Kind, Queue
from sqllocks.dialects.base import Fault, FaultKind, StoredLock, Want
from sqllocks.runtime.blocking import drive

__all__ = ["AsyncioCombiner", "BlockingCombiner"]

logger = logging.getLogger("sqllocks")


class _Combiner(ABC):
    """What both forms share: the backend's methods, and what becomes of a batch."""

    def __init__(self, backend: LeaseBackend) -> None:
        self._backend = backend
        self.capabilities = backend.capabilities

    @property
    def freed(self) -> Callable[[str], None]:
        return self._backend.freed

    @freed.setter
    def freed(self, told: Callable[[str], None]) -> None:
        self._backend.freed = told

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
        except Fault as fault:
            if len(batch) == 1 or fault.kind is FaultKind.GONE:
                # nobody knows what was carried out: each caller settles that for itself
                _fail(batch, fault)
                return
            await self._one_by_one(batch)
        except BaseException as error:
            _fail(batch, error)
            raise
        else:
            for call in batch:
                call.answers = {want.key: answers[want.key] for want in call.wants}

    async def _one_by_one(self, batch: Sequence[Call]) -> None:
        """What fails for all need not fail for each."""
        for call in batch:
            try:
                call.answers = await self._send(call.kind, call.wants, values=call.values)
            except Fault as fault:
                call.error = fault
            except BaseException as error:
                _fail([each for each in batch if not each.answers and each.error is None], error)
                raise


class AsyncioCombiner(_Combiner):
    """The queue of the asyncio form."""

    def __init__(self, backend: LeaseBackend, *, limit: int) -> None:
        super().__init__(backend)
        self._limit = limit
        self._tasks: set[asyncio.Task[None]] = set()
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._queue = Queue(self._limit)

    async def _call(self, kind: Kind, wants: Sequence[Want], *, values: bool = True) -> Answers:
        if self._pid != os.getpid():
            self._reset()
        queue = self._queue
        if queue.idle:
            flight = object()
            queue.start(flight, wants)
            try:
                return await self._send(kind, wants, values=values)
            finally:
                queue.finish(flight)
                self._pump()
        answered = asyncio.get_running_loop().create_future()
        call = Call(kind, wants, values, lambda: answered.done() or answered.set_result(None))
        queue.add(call)
        self._pump()
        try:
            await answered
        finally:
            queue.drop(call)
        if call.error is not None:
            raise _own(call.error)
        return call.answers

    def _pump(self) -> None:
        while batch := self._queue.next():
            task = asyncio.get_running_loop().create_task(self._fly(batch), name="sqllocks-sender")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _fly(self, batch: Sequence[Call]) -> None:
        try:
            await self._serve(batch)
        finally:
            self._queue.finish(batch[0])
            for call in batch:
                call.ended()
            self._pump()

    async def settle(self, timeout: float | None) -> None:
        """Wait for what is in flight although nobody waits for it any more."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout)


class BlockingCombiner(_Combiner):
    """The queue of the blocking form; the sender is a daemon thread that ends when it has been idle."""

    LINGER = 5.0

    def __init__(self, backend: LeaseBackend, *, limit: int) -> None:
        super().__init__(backend)
        self._limit = limit
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._mutex = threading.Lock()
        self._some = threading.Condition(self._mutex)
        self._queue = Queue(self._limit)
        self._thread: threading.Thread | None = None

    async def _call(self, kind: Kind, wants: Sequence[Want], *, values: bool = True) -> Answers:
        if self._pid != os.getpid():
            self._reset()
        flight = object()
        try:
            with self._mutex:
                alone = self._queue.idle
                if alone:
                    self._queue.start(flight, wants)
            if alone:
                return await self._send(kind, wants, values=values)
        finally:
            with self._mutex:
                self._queue.finish(flight)
                if self._queue.waiting:
                    self._some.notify()
        answered = threading.Lock()
        answered.acquire()
        call = Call(kind, wants, values, answered.release)
        with self._mutex:
            self._queue.add(call)
            self._wake()
        try:
            answered.acquire()
        except BaseException:
            with self._mutex:
                self._queue.drop(call)
            raise
        if call.error is not None:
            raise _own(call.error)
        return call.answers

    def _wake(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._main, name="sqllocks-sender", daemon=True)
            self._thread.start()
        self._some.notify()

    def _main(self) -> None:
        while True:
            with self._mutex:
                while not (batch := self._queue.next()):
                    if not self._some.wait(self.LINGER) and not self._queue.waiting:
                        self._thread = None
                        return
            try:
                drive(self._serve(batch))
            except Exception:
                logger.exception("a shared statement failed")
            with self._mutex:
                self._queue.finish(batch[0])
            for call in batch:
                call.ended()


def _fail(batch: Sequence[Call], error: BaseException) -> None:
    for call in batch:
        call.error = error


def _own(error: BaseException) -> BaseException:
    """Return an error for one of several callers: the traceback of a shared one would grow with each."""
    if isinstance(error, Fault):
        own = Fault(error.kind, error.message, sent=error.sent)
        own.__cause__ = error.__cause__
        return own
    return error
