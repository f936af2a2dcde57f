"""Other processes with lockers and electors of their own."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from tests.conformance.processes import Process
from tests.locks.subject import LockSubject

__all__ = ["Pool", "worker"]

MODULE = "tests.locks.worker"


def worker(subject: LockSubject, **options: Any) -> Process:
    """Return a process of its own with a locker; the caller kills or closes it."""
    process = Process(module=MODULE)
    process.ask("connect", address=subject.address, asyncio_form=subject.kind.asyncio, options=options)
    return process


class Pool:
    """Processes that are kept from case to case, because starting one takes half a second."""

    def __init__(self) -> None:
        self._idle: list[Process] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._idle:
            process.close()

    def take(self, subject: LockSubject, count: int, **options: Any) -> list[Process]:
        """Return processes, each with a new locker on this subject's database."""
        self._idle = [process for process in self._idle if process.alive]
        self._idle += [Process(module=MODULE) for _ in range(count - len(self._idle))]
        for process in self._idle[:count]:
            process.tell(
                "connect", address=subject.address, asyncio_form=subject.kind.asyncio, options=options
            )
        for process in self._idle[:count]:
            process.answer()
        return self._idle[:count]
