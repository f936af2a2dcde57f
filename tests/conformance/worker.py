"""The other end of ``processes``: does what it is told, with a provider of its own."""

from __future__ import annotations

import contextlib
import faulthandler
import linecache
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any, Self

from sqlalchemy import create_engine, event
from sqlalchemy.ext.asyncio import create_async_engine

import sqllocks
from tests.conformance import shifting
from tests.conformance.driving import Client, LoopThread

APART = 0.3
"""Seconds between two common moments, enough for everybody to connect."""
SPIN = 0.001
"""Seconds before a common moment in which a process only watches the clock."""
PACKAGE = next(iter(sqllocks.__path__))


class Interrupter:
    """Raises KeyboardInterrupt at a chosen moment, while the library is at work."""

    def __init__(self) -> None:
        signal.signal(signal.SIGALRM, self._on_alarm)

    def after(self, seconds: float) -> None:
        """Interrupt once, that long from now."""
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def off(self) -> None:
        """Interrupt no more."""
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _on_alarm(self, _number: int, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code.co_filename.startswith(PACKAGE):
                raise KeyboardInterrupt
            frame = frame.f_back


class LineInterrupter:
    """Raises KeyboardInterrupt before a chosen line of the library, counted from the start of a call.

    Lines of ``threading`` count where the library called them: its locks are written in Python in part.
    """

    def __init__(self, line: int = 0) -> None:
        self._line = line
        self.seen = 0

    def __enter__(self) -> Self:
        sys.settrace(self._on_call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _on_call(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        code, caller = frame.f_code, frame.f_back
        if code.co_filename.startswith(PACKAGE):
            # nothing runs between the grant and the return of these two that a signal could stop
            return None if code.co_name == "drive" or "providers" in code.co_filename else self._on_line
        called = caller is not None and caller.f_trace == self._on_line
        return self._on_line if called and code.co_filename == threading.__file__ else None

    def _on_line(self, frame: FrameType, event: str, _argument: Any) -> Any:
        # `with` is told again when its block is left, and `try` runs nothing: no signal stops it there
        source = linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip()
        if event == "line" and not source.startswith(("with ", "async with ", "try:")):
            self.seen += 1
            if self.seen == self._line:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self._on_line


class Worker:
    """One client, and what can be done with it."""

    def __init__(self) -> None:
        self._loop = LoopThread()
        self._threads = ThreadPoolExecutor(4)
        self._open: tuple[str, bool] | None = None
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        assert self._client is not None
        return self._client

    def connect(self, *, address: str, asyncio_form: bool) -> None:
        """Open the client, unless it is open already, and one connection of it."""
        if self._open != (address, asyncio_form):
            self.close()
            form = sqllocks.AsyncSqlLockProvider if asyncio_form else sqllocks.SqlLockProvider
            loop = self._loop if asyncio_form else None
            self._client = Client(form(address), loop=loop, threads=self._threads)
            self._open = (address, asyncio_form)
            with contextlib.suppress(sqllocks.SchemaMissing):
                self.client.locked("warm up")

    def close(self) -> None:
        if self._client is not None:
            self._client.close(timeout=0.1)
        self._client = self._open = None

    def call(self, *, method: str, arguments: Any = (), moment: float = 0.0, **options: Any) -> Any:
        """Call a method of the provider at the common moment."""
        wait_for(moment)
        return self.client.call(method, *arguments, **options)

    def create(self, *, tables: list[str], address: str, asyncio_form: bool, moment: float) -> None:
        """Create tables, each with a new provider, and each at the same moment as the other processes."""
        for number, table in enumerate(tables):
            # the library keeps the application's listeners: so all wait with an open connection
            listener = waiting_for(moment + number * APART)
            if asyncio_form:
                asyncio_engine = create_async_engine(address)
                event.listen(asyncio_engine.sync_engine, "checkout", listener)
                provider: Any = sqllocks.AsyncSqlLockProvider(asyncio_engine, table=table)
            else:
                engine = create_engine(address)
                event.listen(engine, "checkout", listener)
                provider = sqllocks.SqlLockProvider(engine, table=table)
            client = Client(provider, loop=self._loop if asyncio_form else None, threads=self._threads)
            try:
                client.call("create_table")
            finally:
                client.close()

    def compete(
        self, *, key: str, ttl: float, seconds: float, moment: float
    ) -> list[tuple[float, float, int]]:
        """Take and give back a key again and again; return (won, given back, token) of each grant."""
        grants: list[tuple[float, float, int]] = []
        wait_for(moment)
        while time.monotonic() < moment + seconds:
            handle = self.client.acquire(key, ttl=ttl)
            if not handle:
                continue
            won = time.monotonic()
            if len(grants) % 4 == 3:  # leave it to expire
                grants.append((won, won, handle.fencing_token))
                continue
            given_back = time.monotonic()
            self.client.release(key, owner_token=handle.owner_token)
            grants.append((won, given_back, handle.fencing_token))
        return grants

    def count_lines(self, *, key: str) -> int:
        """Return how many lines of the library an acquire of an unused key runs."""
        with LineInterrupter() as counter:
            handle = self.client.provider.acquire(key, ttl=30)
        self.client.release(key, owner_token=handle.owner_token)
        return counter.seen

    def interrupt_at_lines(self, *, keys: dict[str, int]) -> dict[str, str]:
        """Interrupt the acquire of each key before its line; return what became of each."""
        outcomes = {}
        for key, line in keys.items():
            handle = None
            try:
                with LineInterrupter(line):
                    handle = self.client.provider.acquire(key, ttl=30)
            except KeyboardInterrupt:
                outcomes[key] = "interrupted"
            if handle:
                outcomes[key] = "acquired"
                self.client.release(key, owner_token=handle.owner_token)
        return outcomes

    def work_on(self, *, keys: list[str]) -> None:
        """Take and give back keys at the same time; a connection or lock that was lost would show."""
        handles = [self.client.start("acquire", key, ttl=30) for key in keys]
        for key, handle in zip(keys, handles, strict=True):
            assert self.client.release(key, owner_token=handle.result(10).owner_token)

    def interrupt(self, *, keys: list[str], longest: float) -> dict[str, str]:
        """Interrupt one acquire of each key, later from key to key; return what became of each."""
        assert threading.current_thread() is threading.main_thread()
        interrupter = Interrupter()
        outcomes = {}
        for number, key in enumerate(keys, 1):
            handle = None
            interrupter.after(longest * number / len(keys))
            try:
                handle = self.client.provider.acquire(key, ttl=30)
            except KeyboardInterrupt:
                outcomes[key] = "interrupted"
            except sqllocks.LockError as error:
                outcomes[key] = repr(error)
            finally:
                interrupter.off()
            if handle:
                outcomes[key] = "acquired"
                self.client.release(key, owner_token=handle.owner_token)
        return outcomes


def waiting_for(moment: float) -> Callable[..., None]:
    """Return a listener that holds up the use of a connection until the moment."""

    def listener(*_: object) -> None:
        wait_for(moment)

    return listener


def wait_for(moment: float) -> None:
    """Return at the moment (of the monotonic clock, which all processes share)."""
    while (left := moment - time.monotonic()) > 0:
        time.sleep(left / 2 if left > SPIN else 0)


def serve(pipe: Connection[Any, Any]) -> None:
    """Carry out commands until the pipe is closed."""
    serve_with(Worker(), pipe)


def serve_with(worker: Any, pipe: Connection[Any, Any]) -> None:
    """Carry out the commands that the worker knows until the pipe is closed."""
    while True:
        try:
            command, options = pipe.recv()
        except EOFError:
            worker.close()
            return
        try:
            reply = pickle.dumps((True, getattr(worker, command)(**options)))
        except Exception as error:
            reply = failure(error)
        pipe.send_bytes(reply)


def failure(error: Exception) -> bytes:
    """Return the error in a form that can be sent, whatever it is."""
    try:
        reply = pickle.dumps((False, error))
        pickle.loads(reply)
    except Exception as broken:
        return pickle.dumps((False, AssertionError(f"cannot be pickled ({broken!r}): {error!r}")))
    return reply


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1)  # tells where a process hangs
    if len(sys.argv) > 2:
        shifting.shift(float(sys.argv[2]))
    serve(Connection(int(sys.argv[1])))
