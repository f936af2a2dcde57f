"""Other processes that take part in a scenario, each doing one job at a time.

A job is a function at the top of an importable module; it goes to the process by name, its arguments
and what it returns or raises go by pickle. Clients that a job opened stay open between jobs.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, Generic, ParamSpec, TypeVar

from tests.conformance import shifting
from tests.faults.processes import FORKING
from tests.scenarios import jobs

P = ParamSpec("P")
T = TypeVar("T")

PATIENCE = 60.0
"""Seconds after which an answer that did not come fails the test."""
HEAD_START = 0.015
"""Seconds from the command to the common moment of a race."""


class Pending(Generic[T]):
    """A job that was begun."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    @property
    def done(self) -> bool:
        """Tell whether the answer is there."""
        return self._worker.pipe.poll(0)

    def result(self, within: float = PATIENCE) -> T:
        """Return what the job returned, or raise what it raised."""
        assert self._worker.pipe.poll(within), f"no answer within {within} s"
        try:
            done, value = self._worker.pipe.recv()
        except EOFError:
            raise AssertionError("the process ended in the middle of a job") from None
        self._worker.busy = False
        if not done:
            raise value
        answer: T = value
        return answer

    def outcome(self) -> T | Exception:
        """Return what the job returned or raised."""
        try:
            return self.result()
        except Exception as error:
            return error


class Worker:
    """One other process; ``zone`` is where it believes to be, ``ahead`` how wrong its clock is."""

    def __init__(self, *, zone: str | None = None, ahead: float = 0.0) -> None:
        self.pipe, theirs = FORKING.Pipe()
        self.busy = False
        self._process = FORKING.Process(target=_serve, args=(theirs, zone, ahead), daemon=True)
        self._process.start()
        theirs.close()

    def start(self, job: Callable[P, T], /, *arguments: P.args, **options: P.kwargs) -> Pending[T]:
        """Begin a job; its answer must be taken before the next one."""
        assert not self.busy, "the process still has a job"
        self.busy = True
        self.pipe.send_bytes(pickle.dumps((job, arguments, options)))
        return Pending(self)

    def run(self, job: Callable[P, T], /, *arguments: P.args, **options: P.kwargs) -> T:
        """Return what the job returns, or raise what it raises."""
        return self.start(job, *arguments, **options).result()

    def join(self) -> None:
        """Wait for the end of the process, and kill it if that does not come."""
        self._process.join(0.1 if self.busy else 10)
        if self._process.is_alive():
            self._process.kill()
            self._process.join(PATIENCE)
        self._process.close()


def end(workers: Sequence[Worker]) -> None:
    """Let all processes close their clients and end; those in the middle of a job are killed."""
    for worker in workers:
        worker.pipe.close()
    for worker in workers:
        worker.join()


def at_once(
    workers: Sequence[Worker],
    job: Callable[..., T],
    /,
    *each: Sequence[Any],
    **options: Any,
) -> list[T | Exception]:
    """Let all workers run a job at the same moment, which is its first argument.

    Each further argument is a list with one element for each worker. Returns for each what the job
    returned or raised.
    """
    moment = time.monotonic() + HEAD_START
    begun: list[Pending[T]] = []
    for worker, *arguments in zip(workers, *each, strict=True):
        begun.append(worker.start(job, moment, *arguments, **options))
    return [pending.outcome() for pending in begun]


def _serve(pipe: Connection[Any, Any], zone: str | None, ahead: float) -> None:
    """Do jobs until the pipe is closed."""
    if zone is not None:
        os.environ["TZ"] = zone
        time.tzset()
    if ahead:
        shifting.shift(ahead)
    while True:
        try:
            request = pipe.recv_bytes()
        except EOFError:
            jobs.clients.close()
            return
        try:
            job, arguments, options = pickle.loads(request)
            reply = pickle.dumps((True, job(*arguments, **options)))
        except Exception as error:
            reply = _failure(error)
        pipe.send_bytes(reply)


def _failure(error: Exception) -> bytes:
    """Return the error in a form that can be sent, whatever it is."""
    try:
        reply = pickle.dumps((False, error))
        pickle.loads(reply)
    except Exception as broken:
        return pickle.dumps((False, AssertionError(f"cannot be pickled ({broken!r}): {error!r}")))
    return reply
