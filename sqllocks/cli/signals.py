"""Signals as events for the main loop of commands that start a command."""

from __future__ import annotations

import os
import queue
import signal
from types import FrameType, TracebackType
from typing import Any, Self

__all__ = [
    "SIGCHLD",
    "SIGCONT",
    "SIGHUP",
    "SIGINT",
    "SIGKILL",
    "SIGQUIT",
    "SIGTERM",
    "SIGTSTP",
    "Interrupted",
    "Signals",
    "stop_this_process",
]


def _number(name: str) -> int:
    """Return the number of a signal, or 0 where the system has no such signal (Windows)."""
    return int(getattr(signal, name, 0))


SIGCHLD = _number("SIGCHLD")
SIGCONT = _number("SIGCONT")
SIGHUP = _number("SIGHUP")
SIGINT = _number("SIGINT")
SIGKILL = _number("SIGKILL") or _number("SIGTERM")
SIGQUIT = _number("SIGQUIT")
SIGTERM = _number("SIGTERM")
SIGTSTP = _number("SIGTSTP")

_TO_PASS_ON = (SIGTERM, SIGINT, SIGQUIT, SIGHUP, _number("SIGUSR1"), _number("SIGUSR2"))
_ABOUT_JOBS = (SIGTSTP, SIGCONT, SIGCHLD)
POLL = 0.1
"""Longest wait where no signal tells that a child ended, in seconds."""


class Interrupted(KeyboardInterrupt):
    """A signal came while there was no command yet to pass it on to."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Signals:
    """Takes the signals of the process, as a context manager.

    First each raises ``Interrupted`` where it is met, as Ctrl-C does by itself; after ``collect`` they
    wait in a queue. What was ignored at the start (``nohup``) stays ignored, also for the command.
    """

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[int] = queue.SimpleQueue()  # a handler may put into it
        self._collecting = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._take(_TO_PASS_ON)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def collect(self) -> None:
        """From now on raise nothing, and take the signals of job control too."""
        if not self._collecting:
            self._collecting = True
            self._take(_ABOUT_JOBS)

    def wait(self, seconds: float) -> int:
        """Return the next signal, or 0 when the time is over or ``wake`` was called."""
        try:
            return self._queue.get(timeout=max(seconds if SIGCHLD else min(seconds, POLL), 0))
        except queue.Empty:
            return 0

    def wake(self) -> None:
        """Let ``wait`` return; for other threads."""
        self._queue.put(0)

    def _take(self, numbers: tuple[int, ...]) -> None:
        for number in filter(None, numbers):
            handler = signal.getsignal(number)
            # an inherited "ignore" for SIGCHLD would hide the command's exit code
            if handler is not signal.SIG_IGN or number not in _TO_PASS_ON:
                self._before[number] = handler
                signal.signal(number, self._handle)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if not self._collecting:
            raise Interrupted(number)
        self._queue.put(number)


def stop_this_process() -> None:
    """Stop as a job does, and return once somebody continues the process."""
    os.kill(os.getpid(), signal.SIGSTOP)
