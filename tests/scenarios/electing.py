"""Candidates for election in other processes, and the file in which all of them write what they do."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqllocks import AsyncSqlElector, SqlElector
from tests.scenarios import jobs
from tests.scenarios.targets import Target

PATIENCE = 60.0
STEP = 0.05
"""Seconds between two steps that only a leader may do."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the file; moments are of the clock that all processes of a machine share."""

    key: str
    pid: int
    event: str
    token: int
    moment: float


class Log:
    """The file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def entries(self, key: str, event: str = "", *, pid: int | None = None) -> list[Entry]:
        """Return what was written about a key, in order."""
        found = [Entry(**json.loads(line)) for line in self.path.read_text().splitlines()]
        return [
            entry
            for entry in found
            if entry.key == key and event in ("", entry.event) and pid in (None, entry.pid)
        ]

    def leader(self, key: str) -> int | None:
        """Return the process that began a term and did not end it."""
        leading: int | None = None
        for entry in self.entries(key):
            if entry.event == "start":
                leading = entry.pid
            elif entry.event == "stop" and leading == entry.pid:
                leading = None
        return leading


class Candidate:
    """One elector of this process, standing for one key until told to stop."""

    def __init__(
        self,
        target: Target,
        key: str,
        path: str,
        *,
        leaving: float = 0.0,
        steps: bool = False,
        **options: Any,
    ) -> None:
        self._key = key
        self._path = path
        self._leaving = leaving
        self._steps = steps
        self._stop = threading.Event()
        self._asyncio = target.asyncio
        self._task: Future[None] | None = None
        self.error = ""
        form: Any = AsyncSqlElector if target.asyncio else SqlElector
        bind = target.engine() if target.connect_args else target.address
        self.elector = form(bind, holder=target.holder, **options)
        if target.asyncio:
            self._task = jobs.clients.loop.start(self._stand())
        else:
            self._thread = threading.Thread(target=self._stand_blocking, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Have it resign and end, and close the elector."""
        self._stop.set()
        if self._task is None:
            self._thread.join(PATIENCE)
            assert not self._thread.is_alive()
            self.elector.close(0.1)
            return
        self._task.cancel()
        jobs.clients.loop.run(self._over())

    async def _over(self) -> None:
        assert self._task is not None
        while not self._ended.is_set():
            await self._ended.wait()
        await self.elector.aclose(0.1)

    def _write(self, event: str, token: int) -> None:
        entry = {
            "key": self._key,
            "pid": os.getpid(),
            "event": event,
            "token": token,
            "moment": time.monotonic(),
        }
        number = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        os.write(number, (json.dumps(entry) + "\n").encode())
        os.close(number)

    def _stand_blocking(self) -> None:
        try:
            self.elector.run(self._key, self._lead, stop=self._stop)
        except Exception as error:
            self.error = repr(error)

    def _lead(self, term: Any) -> None:
        self._write("start", term.fencing_token)
        try:
            if not self._steps:
                term.wait_lost()
            while not term.lost:
                self._write("step", term.fencing_token)
                term.wait_lost(STEP)
            self._write("invalid", term.fencing_token)
            time.sleep(self._leaving)
        finally:
            self._write("stop", term.fencing_token)

    async def _stand(self) -> None:
        self._ended = asyncio.Event()
        try:
            await self.elector.run(self._key, self._alead)
        except Exception as error:
            self.error = repr(error)
        finally:
            self._ended.set()

    async def _alead(self, term: Any) -> None:
        self._write("start", term.fencing_token)
        try:
            if not self._steps:
                await term.wait_lost()
            while not term.lost:
                self._write("step", term.fencing_token)
                await asyncio.sleep(STEP)
        finally:
            self._write("invalid" if term.lost else "stopping", term.fencing_token)
            if self._leaving:
                await asyncio.sleep(self._leaving)
            self._write("stop", term.fencing_token)


_candidates: dict[str, Candidate] = {}


def stand(target: Target, key: str, path: str, *, name: str = "", **options: Any) -> int:
    """Begin to stand for a key; return the number of the process."""
    _candidates[key + name] = Candidate(target, key, path, **options)
    return os.getpid()


def resign(key: str, *, name: str = "") -> str:
    """Stop standing and leading; return what went wrong."""
    candidate = _candidates.pop(key + name)
    candidate.stop()
    return candidate.error


def block_the_loop(seconds: float) -> None:
    """Run synchronous code on the loop of this process."""
    done = threading.Event()

    def block() -> None:
        time.sleep(seconds)
        done.set()

    asyncio_loop = jobs.clients.loop

    async def work() -> None:
        block()

    asyncio_loop.start(work())
    assert done.wait(PATIENCE)


def check_terms(log: Log, key: str, *, dead: set[int] | None = None) -> list[Entry]:
    """Terms do not overlap, each has one end, tokens rise; return the beginnings.

    Those of ``dead`` processes were killed before they could write the end.
    """
    starts: list[Entry] = []
    open_: Entry | None = None
    for entry in sorted(log.entries(key), key=lambda entry: entry.moment):
        if entry.event == "start":
            assert open_ is None or open_.pid in (dead or set()), f"{open_} still led at {entry}"
            assert not starts or entry.token > starts[-1].token
            starts.append(entry)
            open_ = entry
        elif entry.event == "stop":
            assert open_ is not None
            assert (open_.pid, open_.token) == (entry.pid, entry.token), f"{entry} ended what is not open"
            open_ = None
    assert open_ is None or open_.pid in (dead or set()), f"{open_} has no end"
    return starts
