"""S26. A holder that is stopped for longer than its ttl: taken over, and refused when it wakes up."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from sqllocks import BackendUnavailable, LockHandle
from tests.conformance.polling import Stopwatch, until
from tests.scenarios import stopping
from tests.scenarios.arena import SERVERS, Arena
from tests.scenarios.stopping import Report
from tests.scenarios.workers import Worker
from tests.servers import require_server

TTL = 2.0
STOPPED = 4.0
AT_MOST = 1.0
SLACK = 1.0
OUTSIDE = 20
INSIDE = 10


@dataclass
class Stopped:
    """One process that is stopped, with several holders in it."""

    arena: Arena
    worker: Worker
    keys: list[str]
    inside: bool = False
    at_most: float | None = None
    pid: int = 0
    taken: dict[str, LockHandle] = field(default_factory=dict)
    """What the contender was granted while the process was stopped."""

    @property
    def freed(self) -> bool:
        """Tell whether its locks can be taken over although it is stopped."""
        return not self.inside or (self.at_most is not None and self.arena.server == "postgresql")

    @property
    def limit(self) -> float:
        """Return within how many seconds they can."""
        return TTL + (self.at_most or 0) + SLACK

    def begin(self) -> None:
        options = {"ttl": TTL, "inside": self.inside, "at_most": self.at_most}
        self.pid = self.worker.run(stopping.begin, self.arena.target(), self.keys, **options)  # type: ignore[arg-type]

    def contend(self) -> None:
        """Ask once for each key that was not granted yet."""
        for key in self.keys:
            with suppress(BackendUnavailable):  # SQLite: the stopped transaction has the file
                if key not in self.taken and (handle := self.arena.client.acquire(key, ttl=60)):
                    self.taken[key] = handle
                    # the next holder begins its own count
                    work = "UPDATE stopped_work SET writes = 0, token = :token WHERE name = :name"
                    self.arena.observer.rows(work, token=handle.fencing_token, name=key)

    def work(self, key: str) -> tuple[int, int]:
        """Return how often the row was written since its last take-over, and by which token."""
        found = "SELECT writes, token FROM stopped_work WHERE name = :name"
        ((writes, token),) = self.arena.observer.rows(found, name=key)
        return int(writes), int(token)


class Crowd:
    """All that are stopped at once on one kind of server."""

    def __init__(self, server: str, arena: Arena, stack: ExitStack) -> None:
        self._server, self._arena, self._stack = server, arena, stack
        self.processes: list[Stopped] = []
        self._add(OUTSIDE, 4)
        # one transaction has a SQLite file for itself, so there each holder inside one needs its own
        self._add(INSIDE // 2, INSIDE // 2 if server == "sqlite" else 1, inside=True, at_most=AT_MOST)
        self._add(INSIDE // 2, INSIDE // 2 if server == "sqlite" else 1, inside=True)

    def _add(
        self, holders: int, processes: int, *, inside: bool = False, at_most: float | None = None
    ) -> None:
        for _ in range(processes):
            arena = self._arena
            if self._server == "sqlite":
                arena = Arena(self._server, self._server, self._stack)
            arena.observer.rows(stopping.TABLE)
            keys = [arena.key("stopped") for _ in range(holders // processes)]
            for key in keys:
                arena.observer.rows("INSERT INTO stopped_work VALUES (:name, 0, 0)", name=key)
            (worker,) = arena.workers([arena.target()])
            self.processes.append(Stopped(arena, worker, keys, inside, at_most))

    @contextmanager
    def stopped(self) -> Iterator[Stopwatch]:
        """Stop all processes, each at a moment of its own."""
        for process in self.processes:
            if not process.inside:
                process.worker.run(stopping.stand_still)
        for process in self.processes:
            time.sleep(random.uniform(0, 0.1))
            self._stop(process)
        try:
            yield Stopwatch()
        finally:
            for process in self.processes:
                os.kill(process.pid, signal.SIGCONT)

    def _stop(self, process: Stopped) -> None:
        os.kill(process.pid, signal.SIGSTOP)
        while self._server == "sqlite" and not process.inside and not writable(process.arena):
            # it was stopped in the middle of SQLite's own commit of a renewal, which nobody can pass
            os.kill(process.pid, signal.SIGCONT)
            time.sleep(random.uniform(0, 0.05))
            os.kill(process.pid, signal.SIGSTOP)


def writable(arena: Arena) -> bool:
    """Tell whether nobody has the SQLite file locked."""
    with arena.observer.engine.connect() as connection:
        try:
            connection.execute(text("PRAGMA busy_timeout = 20"))
            connection.execute(text("BEGIN IMMEDIATE"))
        except OperationalError:
            return False
        finally:
            connection.execute(text("PRAGMA busy_timeout = 5000"))
        connection.execute(text("ROLLBACK"))
    return True


@pytest.mark.parametrize("server", SERVERS)
def test_s26_a_stopped_holder_is_taken_over_and_refused_when_it_wakes(arena: Arena, server: str) -> None:
    require_server(server)
    with ExitStack() as stack:
        crowd = Crowd(server, arena, stack)
        for process in crowd.processes:
            process.begin()
        with crowd.stopped() as watch:
            waiting = [process for process in crowd.processes if process.freed]
            while waiting:
                for process in waiting:
                    process.contend()
                    assert watch.seconds < process.limit, "not granted while the holder was stopped"
                waiting = [process for process in waiting if len(process.taken) < len(process.keys)]
            until(lambda: watch.seconds > TTL, within=TTL + 1)
            for process in crowd.processes:
                if not process.freed:
                    process.contend()
                    assert not process.taken, "a transaction that is open was passed"
            until(lambda: watch.seconds > STOPPED, within=STOPPED + 1)
        for process in crowd.processes:
            for report in process.worker.run(stopping.go_on):
                check(process, report)
        for process in crowd.processes:
            process.contend()  # whoever went on has given back
            for key, handle in process.taken.items():
                assert process.arena.client.release(key, owner_token=handle.owner_token) is True
        for each in {id(process.arena): process.arena for process in crowd.processes}.values():
            each.check_quiet()


def check(process: Stopped, report: Report) -> None:
    """What a holder did after it woke up is as promised."""
    if not process.freed:
        # its transaction was safe; whether the lease goes on after it, depends on who is quicker
        assert (report.writes, report.refused) == (2, "")
        assert process.work(report.key) == (2, report.token)
        assert report.losses == bool(report.end)
        return
    taken = process.taken[report.key]
    assert taken.fencing_token > report.token
    assert process.work(report.key) == (0, taken.fencing_token), "a stale write was accepted"
    assert report.losses == 1
    assert report.end == "LeaseLost"
    if process.inside:
        assert report.writes == 0
        assert report.refused in {"InternalError", "OperationalError"}  # the server ended the session
    else:
        assert report.writes > 0
        assert report.refused == "LeaseLost"
        assert report.stale == "StaleFencingToken"
        assert not report.renewed_after
