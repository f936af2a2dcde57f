"""The command line as processes: started, fed, signalled, and ended with the test."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from sqllocks.cli.processes import living

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0
"""Seconds after which something that did not come fails the test; a busy machine is slow to start Python."""


class Running:
    """A command line that runs; its output is read as it comes."""

    def __init__(self, *arguments: str, url: str | None = None, **options: Any) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "SQLLOCKS_URL"}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        if url is not None:
            environment["SQLLOCKS_URL"] = url
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "sqllocks", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            # no controlling terminal, wherever the tests run
            start_new_session=True,
            **options,
        )
        self.lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read_lines, args=(self.process.stdout,), daemon=True),
            threading.Thread(target=self._read_errors, args=(self.process.stderr,), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        """Return the process id of sqllocks itself."""
        return self.process.pid

    @property
    def errors(self) -> str:
        """Return what came on stderr so far."""
        return "".join(self._errors)

    def line(self) -> str:
        """Return the next line of stdout, without its end."""
        line = self.lines.get(timeout=PATIENCE)
        assert line is not None, f"the output is over; stderr: {self.errors}"
        return line.rstrip("\n")

    def say(self, text: str) -> None:
        """Write a line to stdin."""
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def code(self, within: float = PATIENCE) -> int:
        """Wait for the end and return the exit code."""
        code = self.process.wait(within)
        for reader in self._readers:
            reader.join(PATIENCE)
        return code

    def output(self) -> str:
        """Wait for the end and return the rest of stdout."""
        self.code()
        rest: list[str] = []
        while (line := self.lines.get(timeout=PATIENCE)) is not None:
            rest.append(line)
        return "".join(rest)

    def _read_lines(self, pipe: IO[str]) -> None:
        with pipe:
            for line in pipe:
                self.lines.put(line)
        self.lines.put(None)

    def _read_errors(self, pipe: IO[str]) -> None:
        with pipe:
            self._errors.extend(pipe)


@contextmanager
def running(*arguments: str, url: str | None = None, **options: Any) -> Iterator[Running]:
    """Start a command line; whatever is left of it at the end is killed."""
    command = Running(*arguments, url=url, **options)
    try:
        yield command
    finally:
        command.process.kill()
        command.process.wait()
        assert command.process.stdin is not None
        command.process.stdin.close()


def alive(pid: int) -> bool:
    """Tell whether a process lives; one that only waits to be reaped does not."""
    return any(process.pid == pid for process in living())
