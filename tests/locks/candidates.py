"""A candidate that stands for election beside the case, in either form."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from tests.conformance.polling import until
from tests.locks.subject import LockSubject

__all__ = ["Candidate", "Chamber"]

LOOK = 0.01


class Chamber:
    """Counts who leads at a time."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self.rounds = 0
        self._mutex = threading.Lock()

    def enter(self) -> None:
        with self._mutex:
            self.inside += 1
            self.rounds += 1
            self.most = max(self.most, self.inside)

    def leave(self) -> None:
        with self._mutex:
            self.inside -= 1


class Candidate:
    """Leads until it is told to leave, or for ``term`` seconds, or until its term is over."""

    def __init__(
        self,
        subject: LockSubject,
        elector: Any,
        key: str,
        *,
        chamber: Chamber | None = None,
        term: float = 3600,
        error: BaseException | None = None,
        stubborn: bool = False,
    ) -> None:
        self.terms: list[Any] = []
        self.began: list[float] = []
        self.ended: list[float] = []
        self.outcome: Any = None
        self.chamber = chamber or Chamber()
        self.leaving = threading.Event()
        self.stopping = threading.Event()
        self.may_end = threading.Event()
        """A stubborn one stays in its callback until this is set."""
        self._subject = subject
        self._elector = elector
        self._key = key
        self._term = term
        self._error = error
        self._stubborn = stubborn
        self._over = threading.Event()
        self._task: asyncio.Task[Any] | None = None

    def __enter__(self) -> Self:
        work = self._arun if self._subject.kind.asyncio else self._run
        self._future = self._subject.start(work)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.may_end.set()
        self.stop()

    def stop(self, within: float = 20) -> None:
        """Stop the candidate and wait until it has stopped."""
        self.halt()
        assert self._over.wait(within), "the candidate does not stop"

    def halt(self) -> None:
        """Tell it to stop."""
        self.stopping.set()
        if self._subject.kind.asyncio:
            self._subject.run(self._cancel())

    def done(self) -> bool:
        """Return whether ``run`` has ended."""
        return self._over.is_set()

    def leads(self, number: int = 1, within: float = 15) -> Any:
        """Wait until it leads for that time; return the term."""
        until(lambda: len(self.terms) >= number or self.done(), within=within, what=f"term {number}")
        assert len(self.terms) >= number, repr(self.outcome)
        return self.terms[number - 1]

    @property
    def leading(self) -> bool:
        """Whether its callback is running."""
        return len(self.began) > len(self.ended)

    async def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _run(self) -> None:
        try:
            self._elector.run(self._key, self._lead, stop=self.stopping)
        except BaseException as error:
            self.outcome = error
        finally:
            self._over.set()

    async def _arun(self) -> None:
        self._task = asyncio.current_task()
        try:
            if not self.stopping.is_set():
                await self._elector.run(self._key, self._alead)
        except BaseException as error:
            self.outcome = error
        finally:
            self._over.set()

    def _enter(self, term: Any) -> float:
        self.chamber.enter()
        self.began.append(time.monotonic())
        self.terms.append(term)
        return time.monotonic() + self._term

    def _leave(self) -> None:
        self.ended.append(time.monotonic())
        self.chamber.leave()

    def _goes_on(self, end: float) -> bool:
        return not self.leaving.is_set() and time.monotonic() < end

    def _lead(self, term: Any) -> None:
        end = self._enter(term)
        try:
            while self._goes_on(end) and not term.wait_lost(LOOK):
                pass
            if self._stubborn:
                self.may_end.wait(20)
            if self._error is not None:
                raise self._error
        finally:
            self._leave()

    async def _until(self, over: Callable[[], bool]) -> None:
        while not over():  # noqa: ASYNC110 - the test's own thread says so
            await asyncio.sleep(LOOK)

    async def _alead(self, term: Any) -> None:
        end = self._enter(term)
        try:
            try:
                await self._until(lambda: not self._goes_on(end))
            except asyncio.CancelledError:
                if not self._stubborn:
                    raise
            if self._stubborn:
                await self._until(self.may_end.is_set)
            if self._error is not None:
                raise self._error
        finally:
            self._leave()
