"""The other end of ``processes``: does what it is told, with a locker and an elector of its own."""

from __future__ import annotations

import asyncio
import faulthandler
import inspect
import os
import signal
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

import sqllocks
from tests.conformance.driving import LoopThread
from tests.conformance.worker import Interrupter, serve_with, wait_for

Span = tuple[float, float, int]
"""When a lock was held or a term led, by the clock that all processes share, and its token."""


class LockWorker:
    """One locker, and what can be done with it."""

    def __init__(self) -> None:
        self._loop = LoopThread()
        self._threads = ThreadPoolExecutor(8)
        self._asyncio = False
        self._locker: Any = None
        self._open: Any = None
        self._held: dict[str, Any] = {}
        self._campaigns: list[_Campaign] = []

    def connect(self, *, address: str, asyncio_form: bool, options: dict[str, Any]) -> None:
        """Make a locker, unless it is there already, and open its session."""
        if self._open != (address, asyncio_form, options):
            self.close()
            self._asyncio, self._address = asyncio_form, address
            form: Any = sqllocks.AsyncSqlLocker if asyncio_form else sqllocks.SqlLocker
            self._locker = form(address, **options)
            self._open = address, asyncio_form, options
            self._do(self._do(self._locker.lock(f"warm up {os.getpid()}")).unlock())

    def close(self) -> None:
        for campaign in self._campaigns:
            campaign.stop()
        self._campaigns = []
        if self._locker is not None:
            self._do(self._locker.aclose(0.1) if self._asyncio else self._locker.close(0.1))
        self._locker, self._open, self._held = None, None, {}

    def _do(self, outcome: Any) -> Any:
        return self._loop.run(outcome) if inspect.isawaitable(outcome) else outcome  # type: ignore[arg-type]

    def try_lock(self, *, key: str, moment: float = 0.0) -> int | None:
        """Take a lock at the common moment and keep it; return its token, or ``None``."""
        wait_for(moment)
        lock = self._do(self._locker.try_lock(key))
        if lock is None:
            return None
        self._held[key] = lock
        return int(lock.fencing_token or 0)

    def unlock(self, *, key: str) -> bool:
        return bool(self._do(self._held.pop(key).unlock()))

    def lost(self, *, key: str) -> bool:
        return bool(self._held[key].lost)

    def held(self, *, key: str) -> bool:
        return bool(self._do(self._held[key].held()))

    def compete(self, *, key: str, seconds: float, moment: float) -> list[Span]:
        """Take and give back a key again and again."""
        spans = []
        wait_for(moment)
        while time.monotonic() < moment + seconds:
            lock = self._do(self._locker.try_lock(key))
            if lock is None:
                continue
            won = time.monotonic()
            lock.check()
            spans.append((won, time.monotonic(), int(lock.fencing_token)))
            assert self._do(lock.unlock()) is True
        return spans

    def stand(self, *, key: str, term: float, options: dict[str, Any]) -> None:
        """Stand for election in the background, leading for ``term`` seconds at a time."""
        form: Any = sqllocks.AsyncSqlElector if self._asyncio else sqllocks.SqlElector
        elector = form(options.pop("address", self._address), **options)
        campaign = _Campaign(elector, key, term, self._loop if self._asyncio else None)
        self._campaigns.append(campaign)
        if self._asyncio:
            self._loop.start(campaign.arun())
        else:
            self._threads.submit(campaign.run)

    def terms(self) -> list[Span]:
        """End all campaigns and return the terms that they led."""
        for campaign in self._campaigns:
            campaign.stop()
        spans = [span for campaign in self._campaigns for span in campaign.spans]
        self._campaigns = []
        return spans

    def interrupt(self, *, keys: list[str], longest: float) -> dict[str, str]:
        """Interrupt one try for each key, later from key to key; return what became of each."""
        assert threading.current_thread() is threading.main_thread()
        interrupter = Interrupter()
        outcomes = {}
        for number, key in enumerate(keys, 1):
            lock = None
            interrupter.after(longest * number / len(keys))
            try:
                lock = self._locker.try_lock(key)
            except KeyboardInterrupt:
                outcomes[key] = "interrupted"
            except sqllocks.LockError as error:
                outcomes[key] = repr(error)
            finally:
                interrupter.off()
            if lock is not None:
                outcomes[key] = "acquired"
                lock.unlock()
        return outcomes

    def fork(self, *, key: str, other: str) -> str:
        """Fork while a lock is held; return what the child found wrong."""
        lock = self._held[key]
        ear, mouth = os.pipe()
        child = os.fork()
        if child == 0:
            complaint = _in_child(self._locker, lock, key, other)
            os.write(mouth, complaint.encode() or b"ok")
            os.close(mouth)
            os._exit(0)
        os.close(mouth)
        with os.fdopen(ear) as pipe:
            answer = pipe.read()
        os.waitpid(child, 0)
        return answer


def _in_child(locker: Any, lock: Any, key: str, other: str) -> str:
    try:
        assert lock.lost, "the child's lock is not lost"
        assert lock.unlock() is False, "the child unlocked its parent's lock"
        assert locker.try_lock(key) is None, "the child was granted its parent's lock"
        mine = locker.try_lock(other)
        assert mine is not None, "the child was refused a free lock"
        assert mine.unlock() is True, "the child could not give its lock back"
        locker.close(1)
    except BaseException:
        return traceback.format_exc()
    return ""


class _Campaign:
    """One candidate that notes its terms."""

    def __init__(self, elector: Any, key: str, term: float, loop: LoopThread | None) -> None:
        self.spans: list[Span] = []
        self._elector = elector
        self._key = key
        self._term = term
        self._loop = loop
        self._stopped = threading.Event()
        self._over = threading.Event()
        self._task: asyncio.Task[Any] | None = None

    def run(self) -> None:
        try:
            self._elector.run(self._key, self._lead, stop=self._stopped)
        finally:
            self._over.set()

    async def arun(self) -> None:
        self._task = asyncio.current_task()
        try:
            await self._elector.run(self._key, self._alead)
        except asyncio.CancelledError:
            return
        finally:
            self._over.set()

    def stop(self) -> None:
        self._stopped.set()
        if self._loop is not None:
            self._loop.run(self._cancel())
        assert self._over.wait(10), "the campaign does not end"
        if self._loop is not None:
            self._loop.run(self._elector.aclose(1))
        else:
            self._elector.close(1)

    async def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _lead(self, term: Any) -> None:
        began = time.monotonic()
        term.wait_lost(self._term)
        self.spans.append((began, time.monotonic(), term.fencing_token))

    async def _alead(self, term: Any) -> None:
        began = time.monotonic()
        try:
            await term.wait_lost(self._term)
        finally:
            self.spans.append((began, time.monotonic(), term.fencing_token))


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1)  # tells where a process hangs
    serve_with(LockWorker(), Connection(int(sys.argv[1])))
