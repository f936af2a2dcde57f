"""The combining queue of the blocking form.

The one who sends for several is a thread of its own, so that a ``KeyboardInterrupt`` in one caller leaves
the others served.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence

from sqllocks.backends.base import Answers, LeaseBackend
from sqllocks.core.combining import Call, Kind, Queue
from sqllocks.dialects.base import Want
from sqllocks.runtime.blocking import drive
from sqllocks.runtime.combining import OVERDUE, Combiner, own
from sqllocks.runtime.kept import inherit

__all__ = ["BlockingCombiner"]

logger = logging.getLogger("sqllocks")


TURNS = 0.01
"""Seconds that those who were just answered get for their turns, where the next statement waits for them."""


class BlockingCombiner(Combiner):
    """The queue of the blocking form; the sender is a daemon thread that ends when it has been idle.

    After a shared statement its callers wake up one after the other, each woken by the one before, and the
    sender behind them: so the next statement carries all who came back. Threads that are woken at once only
    get into each other's way, because one of them at a time runs.

    A ``KeyboardInterrupt`` can strike between any two steps of a caller, but a plain lock is always let go
    by its ``with``. Whoever is not woken because of it is woken by the sender, ``TURNS`` later.
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
        self._asleep = False
        self._gathering = False
        self._turns: deque[threading.Lock] = deque()
        self._lone: threading.Lock | None = None
        self._inside: dict[int, threading.Lock] = {}

    def forget_parent(self) -> None:
        inherit((self._queue, self._thread, self._some))
        self._reset()

    async def _call(self, kind: Kind, wants: Sequence[Want], *, values: bool = True) -> Answers:
        thread = threading.get_ident()
        outer = self._inside.get(thread)
        if outer is not None and outer.locked():
            # a signal handler in the middle of a call: that one cannot go on before this one has ended
            return await self._send(kind, wants, values=values)
        flight = threading.Lock()
        with flight:
            self._inside[thread] = flight
            try:
                if self._starts(flight, wants):
                    try:
                        return await self._send(kind, wants, values=values)
                    finally:
                        self._finish(flight)
                call = Call(kind, wants, values, threading.Lock())
                if not self._served(call):
                    return await self._send(kind, wants, values=values)
            finally:
                self._inside.pop(thread, None)
        if call.error is not None:
            raise own(call.error)
        return call.answers or {}

    def _starts(self, flight: threading.Lock, wants: Sequence[Want]) -> bool:
        """Return whether this caller sends by itself; it holds the lock ``flight`` until it has."""
        with self._mutex:
            self._sweep()
            if self._gathering or not self._queue.idle:
                return False
            self._lone = flight
            self._queue.start(flight, wants)
            return True

    def _finish(self, flight: object) -> None:
        with self._mutex:
            self._queue.finish(flight)
            if self._asleep and self._queue.waiting:
                self._some.notify()

    def _sweep(self) -> None:
        """Finish the flight of a caller whom an interrupt kept from doing so."""
        if self._lone is not None and not self._lone.locked():
            self._queue.finish(self._lone)
            self._lone = None

    def _served(self, call: Call) -> bool:
        """Wait for the answer to a call; ``False`` where nobody but its caller can send it."""
        turn: threading.Lock = call.caller
        turn.acquire()
        try:
            with self._mutex:
                self._queue.add(call)
                flights = self._queue.flights
                sent = self._wake()
            while sent and not turn.acquire(timeout=OVERDUE):
                flights = self._overdue(flights)
            if sent:
                self._wake_next()
                return True
        except BaseException:
            with self._mutex:
                self._queue.drop(call)
            raise
        with self._mutex:
            self._queue.drop(call)
        return False

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
        elif self._asleep:
            self._some.notify()
        return True

    def _main(self) -> None:
        while batch := self._next():
            try:
                drive(self._serve(batch))
            except BaseException:
                logger.exception("a shared statement was stopped")
            self._land(batch)

    def _land(self, batch: Sequence[Call]) -> None:
        with self._mutex:
            self._queue.finish(batch[0])
            # one who is alone goes on alone
            self._gathering = gathering = len(batch) > 1 or self._queue.waiting
        turns = [call.caller for call in batch]
        if not gathering:
            turns[0].release()
            return
        own_turn = threading.Lock()
        own_turn.acquire()
        self._turns.extend([*turns, own_turn])
        self._wake_next()
        if not own_turn.acquire(timeout=TURNS):
            while self._wake_next():
                pass

    def _wake_next(self) -> bool:
        try:
            self._turns.popleft().release()
        except IndexError:
            return False
        return True

    def _next(self) -> Sequence[Call]:
        """Wait for calls that can go; empty where this thread is not needed any longer."""
        with self._mutex:
            self._gathering = False
            while self._thread is threading.current_thread():
                self._sweep()
                if batch := self._queue.next():
                    return batch
                self._asleep = True
                woken = self._some.wait(self.LINGER)
                self._asleep = False
                if not woken and not self._queue.waiting:
                    self._thread = None
            self._some.notify()
            return ()
