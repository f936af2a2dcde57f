"""Holders that are told to shut down, or that end without being asked."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqllocks import LeaseLost, LockError, SqlLocker, SqlLockProvider
from tests.scenarios.electing import Candidate
from tests.scenarios.targets import Target

PATIENCE = 30.0


@dataclass
class Report:
    """Moments of the monotonic clock, which all processes of a machine share."""

    told: float = 0.0
    """When SIGTERM came."""
    ended: dict[str, float] = field(default_factory=dict)
    """When each body ended."""
    lost: list[str] = field(default_factory=list)
    """Whose block ended with a loss."""
    closed: float = 0.0
    """When the shutdown hook returned."""


class _Service:
    """Bodies under locks, and a main thread that shuts down when it is told to."""

    def __init__(self, target: Target, ttl: float) -> None:
        self._locks = SqlLockProvider(target.address)
        self._ttl = ttl
        self._told = threading.Event()
        self._closed = threading.Event()
        self.report = Report()

    def run(self, keys: Sequence[str], work_left: Sequence[float], limit: float) -> Report:
        bodies = [
            threading.Thread(target=self._body, args=(key, seconds))
            for key, seconds in zip(keys, work_left, strict=True)
        ]
        before = signal.signal(signal.SIGTERM, lambda *_: self._told.set())
        try:
            for body in bodies:
                body.start()
            assert self._told.wait(PATIENCE)
            self.report.told = time.monotonic()
            self._locks.close(timeout=limit)
            self.report.closed = time.monotonic()
        finally:
            self._closed.set()
            signal.signal(signal.SIGTERM, before)
        for body in bodies:
            body.join(PATIENCE)
        return self.report

    def _body(self, key: str, work_left: float) -> None:
        try:
            with self._locks.hold(key, ttl=self._ttl):
                assert self._told.wait(PATIENCE)
                self._closed.wait(work_left)  # it finishes what it is at, hook or no hook
                self.report.ended[key] = time.monotonic()
        except LeaseLost:
            self.report.lost.append(key)
        except LockError as error:
            self.report.lost.append(repr(error))


def serve(
    target: Target, keys: Sequence[str], *, ttl: float, work_left: Sequence[float], limit: float
) -> Report:
    """Hold the keys until SIGTERM; their bodies go on for a while, the hook waits at most ``limit``."""
    return _Service(target, ttl).run(keys, work_left, limit)


def hold_for_ever(target: Target, key: str, *, ttl: float) -> None:
    """Hold a key, renewed, until the process is killed."""
    with SqlLockProvider(target.address, holder=target.holder).hold(key, ttl=ttl):
        threading.Event().wait()


def serve_session(
    target: Target, key: str, term: str, path: str, *, work_left: float, options: dict[str, Any]
) -> Report:
    """Hold a session lock and lead until SIGTERM; both bodies then finish what they are at."""
    report, told = Report(), threading.Event()
    locker = SqlLocker(target.address, holder=target.holder, **options)
    candidate = Candidate(target, term, path, strategy="session", leaving=work_left, **options)

    def body() -> None:
        try:
            with locker.lock(key, wait=PATIENCE):
                assert told.wait(PATIENCE)
                time.sleep(work_left)
                report.ended[key] = time.monotonic()
        except LockError as error:
            report.lost.append(repr(error))

    before = signal.signal(signal.SIGTERM, lambda *_: told.set())
    try:
        thread = threading.Thread(target=body)
        thread.start()
        assert told.wait(PATIENCE)
        report.told = time.monotonic()
        candidate.stop()
        locker.close(timeout=PATIENCE)
        report.closed = time.monotonic()
        thread.join(PATIENCE)
    finally:
        signal.signal(signal.SIGTERM, before)
    return report
