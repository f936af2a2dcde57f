"""The processes of the demo: started, killed, frozen, and always ended."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from typing import IO

from sqllocks.cli.demo.events import Event, Kind, Settings
from sqllocks.runtime import clock

__all__ = ["Crew"]

MODULE = "sqllocks.cli.demo.worker"
GO = "go\n"
LAST_WAIT = 3.0
"""Seconds that workers have to finish what they are doing."""


class _Member:
    """One worker process, and the thread that reads what it tells."""

    def __init__(self, settings: Settings, told: queue.SimpleQueue[Event]) -> None:
        self.frozen = False
        # a group of its own: Ctrl-C is for the demo, which ends its workers itself
        self.process = subprocess.Popen(  # noqa: S603 - this Python, a module of this package
            [sys.executable, "-P", "-m", MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            process_group=0,
            # -P and this: the same modules as here, whatever the working directory holds
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        self.reader = threading.Thread(
            target=self._read, args=(settings.worker, told, self._pipe(self.process.stdout)), daemon=True
        )
        self.reader.start()
        self._input = self._pipe(self.process.stdin)
        self.tell(settings.line())

    @property
    def pid(self) -> int:
        return self.process.pid

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def tell(self, line: str) -> None:
        with suppress(OSError):  # it has ended
            self._input.write(line)
            self._input.flush()

    def let_end(self) -> None:
        if self.frozen:
            self.signal(signal.SIGCONT)
        with suppress(OSError):  # it has ended
            self._input.close()  # which it watches for

    def end(self, within: float) -> None:
        try:
            self.process.wait(max(within, 0))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.reader.join(LAST_WAIT)

    def _read(self, worker: int, told: queue.SimpleQueue[Event], pipe: IO[str]) -> None:
        with pipe:
            for line in pipe:
                told.put(Event.of_line(line))
        told.put(Event(Kind.ENDED, worker, self.pid, clock.now()))

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe


class Crew:
    """The workers by their numbers; after ``end`` none of them is left."""

    def __init__(self, settings: Settings, count: int) -> None:
        self._settings = settings
        self._told: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._count = count
        self._members: dict[int, _Member] = {}

    def gather(self) -> None:
        """Start all workers, which get ready and wait."""
        for number in range(1, self._count + 1):
            self._start(number)

    def begin(self) -> None:
        """Let all workers begin."""
        for member in self._members.values():
            member.tell(GO)

    def replace(self, number: int) -> int:
        """Start a worker in place of one that was killed; return its process id."""
        member = self._start(number)
        member.tell(GO)
        return member.pid

    def _start(self, number: int) -> _Member:
        member = _Member(replace(self._settings, worker=number), self._told)
        self._members[number] = member
        return member

    def told(self, within: float) -> Event | None:
        """Return the next thing that a worker tells, or ``None`` when the time is over."""
        try:
            return self._told.get(timeout=max(within, 0))
        except queue.Empty:
            return None

    def kill(self, number: int) -> None:
        """End a worker by SIGKILL, as a crash of its host would."""
        member = self._members[number]
        member.process.kill()
        member.let_end()
        member.end(LAST_WAIT)

    def freeze(self, number: int) -> None:
        """Stop a worker by SIGSTOP, as a long pause of its machine would."""
        self._members[number].frozen = True
        self._members[number].signal(signal.SIGSTOP)

    def thaw(self, number: int) -> None:
        """Let a frozen worker go on, as if nothing had happened."""
        self._members[number].frozen = False
        self._members[number].signal(signal.SIGCONT)

    def end(self) -> list[Event]:
        """End all workers, and return what they told meanwhile."""
        for member in self._members.values():
            member.let_end()
        limit = clock.now() + LAST_WAIT
        for member in self._members.values():
            member.end(limit - clock.now())
        self._members.clear()
        last: list[Event] = []
        while (event := self.told(0)) is not None:
            last.append(event)
        return last
