"""Holders that are stopped (SIGSTOP): some between two guarded writes, some inside one."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from sqllocks import LeaseLost, LockError, LockHandle, SqlLockProvider
from tests.scenarios.targets import Target

TABLE = "CREATE TABLE IF NOT EXISTS stopped_work (name VARCHAR(80) PRIMARY KEY, writes BIGINT, token BIGINT)"
WRITE = text("UPDATE stopped_work SET writes = writes + 1, token = :token WHERE name = :name")
PAUSE = 0.1
"""Seconds between two writes of a holder."""
PATIENCE = 30.0


@dataclass
class Report:
    """What became of one holder."""

    key: str
    token: int = 0
    writes: int = 0
    """Writes that were committed."""
    refused: str = ""
    """What the first use of the guard after the loss raised, or the write in the open transaction."""
    stale: str = ""
    """What the guard raised that asks the database alone."""
    end: str = ""
    """What the block raised at its end."""
    losses: int = 0
    renewed_after: bool = False


@dataclass
class Crew:
    """The holders of one process."""

    provider: SqlLockProvider
    engine: Engine
    ttl: float
    reports: list[Report]
    inside: bool
    at_most: float | None
    go: threading.Event = field(default_factory=threading.Event)
    ready: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    mutex: threading.Lock = field(default_factory=threading.Lock)
    threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        for report in self.reports:
            thread = threading.Thread(target=self._hold, args=(report,), daemon=True)
            thread.start()
            self.threads.append(thread)
        for _ in self.reports:
            assert self.ready.acquire(timeout=PATIENCE), "a holder did not come to its work"

    def _hold(self, report: Report) -> None:
        try:
            with self.provider.hold(report.key, ttl=self.ttl) as lease:
                lease.on_lost(lambda: self._lost(report))
                report.token = lease.fencing_token
                (self._work_inside if self.inside else self._work_outside)(lease, report)
        except LeaseLost as lost:
            report.end = type(lost).__name__

    def _lost(self, report: Report) -> None:
        report.losses += 1

    def _work_inside(self, lease: Any, report: Report) -> None:
        try:
            with Session(self.engine) as session, session.begin():
                lease.guard(session, at_most=self.at_most)
                session.execute(WRITE, {"name": report.key, "token": lease.fencing_token})
                self.ready.release()
                assert self.go.wait(PATIENCE)
                session.execute(WRITE, {"name": report.key, "token": lease.fencing_token})
            report.writes += 2
        except (DBAPIError, LockError) as error:
            report.refused = type(error).__name__

    def _work_outside(self, lease: Any, report: Report) -> None:
        handle = LockHandle(True, report.key, lease.owner_token, lease.expires_at, lease.fencing_token)
        while not report.refused:
            with self.mutex:  # whoever has it knows that no transaction is open
                try:
                    self._write(lease, lease.guard)
                    report.writes += 1
                except LockError as error:
                    report.refused = type(error).__name__
            if report.writes == 1:
                self.ready.release()
            self.go.wait(PAUSE)
        try:
            self._write(lease, lambda session: self.provider.guard(session, handle))
        except LockError as error:
            report.stale = type(error).__name__
        report.renewed_after = bool(
            self.provider.extend(report.key, owner_token=lease.owner_token, ttl=self.ttl)
        )

    def _write(self, lease: Any, guard: Any) -> None:
        with Session(self.engine) as session, session.begin():
            guard(session)
            session.execute(WRITE, {"name": lease.lock_key, "token": lease.fencing_token})


_crews: list[Crew] = []


def begin(
    target: Target, keys: Sequence[str], *, ttl: float, inside: bool = False, at_most: float | None = None
) -> int:
    """Hold the keys in threads; return the process id once each has written (inside: is in its write)."""
    engine = target.engine(pool_size=len(keys))
    assert isinstance(engine, Engine)
    reports = [Report(key) for key in keys]
    crew = Crew(SqlLockProvider(target.address), engine, ttl, reports, inside, at_most)
    _crews.append(crew)
    crew.start()
    return os.getpid()


def stand_still() -> None:
    """Return when no guarded transaction of this process is open, and let none begin."""
    for crew in _crews:
        if not crew.inside:
            crew.mutex.acquire()


def go_on() -> list[Report]:
    """Let the holders go on, and return what became of them once all have ended quietly."""
    reports = []
    for crew in _crews:
        if not crew.inside:
            crew.mutex.release()
        crew.go.set()
        for thread in crew.threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), "a holder does not come to its end"
        crew.provider.close()
        crew.engine.dispose()
        reports += crew.reports
    _crews.clear()
    return reports
