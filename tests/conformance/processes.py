"""Other processes that use the library, told what to do through a pipe."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.conformance.subject import Subject

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 30.0
HEAD_START = 0.03
"""Seconds from the command to the common moment of a race."""


class Process:
    """One other process of the suite."""

    def __init__(self, *arguments: str, module: str = "tests.conformance.worker") -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        with theirs:
            number = theirs.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(number), *arguments],
                cwd=ROOT,
                pass_fds=[number],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )

    @property
    def alive(self) -> bool:
        """Tell whether the process has not ended."""
        return self._process.poll() is None

    def tell(self, command: str, **options: Any) -> None:
        """Send a command; its answer must be taken by ``answer`` before the next one."""
        self._pipe.send((command, options))

    def answer(self) -> Any:
        """Return what the command gave, or raise what it raised."""
        if not self._pipe.poll(PATIENCE):
            self._process.send_signal(signal.SIGUSR1)  # it writes to the error output where it hangs
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.5)
            self.kill()
            raise AssertionError("the other process does not answer")
        done, value = self._pipe.recv()
        if done:
            return value
        raise value

    def ask(self, command: str, **options: Any) -> Any:
        """Send a command and return what it gave, or raise what it raised."""
        self.tell(command, **options)
        return self.answer()

    def kill(self) -> None:
        """End the process by SIGKILL."""
        self._process.kill()
        self._process.wait(PATIENCE)
        self._pipe.close()

    def close(self) -> None:
        """Let the process end by itself."""
        if self.alive:
            self._pipe.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
        self._process.kill()
        self._process.wait(PATIENCE)


class ProcessPool:
    """Processes that are kept from case to case, because starting one takes half a second."""

    def __init__(self) -> None:
        self._idle: dict[tuple[str, ...], list[Process]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for processes in self._idle.values():
            for process in processes:
                process.close()

    def take(self, subject: Subject, count: int, *arguments: str) -> list[Process]:
        """Return processes with an open client of this subject's database."""
        kept = [process for process in self._idle.get(arguments, []) if process.alive]
        kept += [Process(*arguments) for _ in range(count - len(kept))]
        self._idle[arguments] = kept
        for process in kept[:count]:
            process.tell("connect", address=subject.address, asyncio_form=subject.kind.asyncio)
        for process in kept[:count]:
            process.answer()
        return kept[:count]


def race(processes: Sequence[Process], command: str, **options: Any) -> list[Any]:
    """Let all processes run the command at the same moment; return what each gave or raised."""
    moment = time.monotonic() + HEAD_START
    for process in processes:
        process.tell(command, moment=moment, **options)
    return [_outcome(process) for process in processes]


def _outcome(process: Process) -> Any:
    try:
        return process.answer()
    except Exception as error:
        return error


__all__ = ["Connection", "Process", "ProcessPool", "race"]
