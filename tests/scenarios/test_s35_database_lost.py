"""S35. The database goes and comes back, leaders die, and there is one leader again; by either strategy."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.polling import until
from tests.scenarios import electing, locking
from tests.scenarios.arena import ALL, Arena
from tests.scenarios.electing import Log
from tests.scenarios.workers import Worker
from tests.servers import LocalServer

LEASE = 3.0
RETRY = 0.5
OPTIONS: dict[str, Any] = {"lease": LEASE, "heartbeat": 0.75, "retry": RETRY}
DOWN = 3.0
AGAIN = LEASE + 3
"""Seconds within which there is a leader again."""
PER_TRY = {"session": 3, "lease": 1}
"""Statements of a candidate that does not lead, for each of its tries: the lock, and who holds it."""
SERVERS = ("postgresql", "mysql", "mariadb") if ALL else ("postgresql", "mariadb")
ROUNDS = 5 if ALL else 1
STRATEGIES = ("session", "lease")
PATIENCE = 30.0


class Election:
    """Candidates of one strategy, in processes that each have the next driver and form."""

    def __init__(self, arena: Arena, strategy: str, log: Log) -> None:
        self.key = arena.key(strategy)
        self.strategy = strategy
        self.log = log
        self.dead: set[int] = set()
        self._arena = arena
        self._workers: dict[int, Worker] = {}

    def join(self) -> int:
        """Let one more candidate stand."""
        target = self._arena.targets(len(self._workers) + 1)[-1]
        (worker,) = self._arena.processes(1)
        pid = worker.run(
            electing.stand, target, self.key, str(self.log.path), strategy=self.strategy, **OPTIONS
        )
        self._workers[pid] = worker
        return pid

    @property
    def starts(self) -> int:
        return len(self.log.entries(self.key, "start"))

    def led(self, *, starts: int = 0) -> int | None:
        """Return the leader, of a term after so many."""
        return self.log.leader(self.key) if self.starts > starts else None

    def resign(self, pid: int) -> float:
        """Let the process stop standing; return when it was told."""
        moment = time.monotonic()
        assert self._workers.pop(pid).run(electing.resign, self.key) == ""
        return moment

    def kill(self, pid: int) -> float:
        """Kill the process; return when."""
        self.dead.add(pid)
        del self._workers[pid]
        moment = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        return moment

    def end(self) -> None:
        for pid in list(self._workers):
            self.resign(pid)
        electing.check_terms(self.log, self.key, dead=self.dead)


def led_again(elections: list[Election], starts: list[int], *, within: float) -> None:
    """Wait for the next leader of each election."""

    def led() -> bool:
        return all(each.led(starts=before) for each, before in zip(elections, starts, strict=True))

    until(led, within=within, what="a leader")


@pytest.mark.timeout(60 + 60 * ROUNDS)
@pytest.mark.parametrize("server", SERVERS)
def test_s35_there_is_one_leader_again_after_each_disturbance(
    own_server: Callable[[str], LocalServer], server: str, tmp_path: Path
) -> None:
    machine = own_server(server)
    with ExitStack() as stack:
        arena = Arena(server, machine, stack)
        log = Log(tmp_path / "terms")
        elections = [Election(arena, strategy, log) for strategy in STRATEGIES]
        for election in elections:
            for _ in range(3):
                election.join()
        led_again(elections, [0, 0], within=PATIENCE)
        if server == "postgresql":
            check_rate(arena)
        for _ in range(ROUNDS):
            lose_sessions(arena, elections)
            lose_the_server(arena, machine, elections)
        hand_over(elections)
        lose_processes(elections)
        for election in elections:
            election.end()
        arena.check_quiet()


def lose_sessions(arena: Arena, elections: list[Election]) -> None:
    """(1) Every session of the library is killed; a lease does not care."""
    starts = [election.starts for election in elections]
    carrier = locking.carrier(arena.observer, f"election:{elections[0].key}")
    assert carrier is not None
    moment = locking.kill(arena.observer, carrier)
    led_again(elections[:1], starts[:1], within=AGAIN)
    after = elections[0].log.entries(elections[0].key, "start")[-1].moment - moment
    assert after < RETRY + 1.0
    assert elections[1].starts == starts[1]


def lose_the_server(arena: Arena, machine: LocalServer, elections: list[Election]) -> None:
    """(2), (3) The server is down for a while, and a candidate comes meanwhile."""
    starts = [election.starts for election in elections]
    arena.observer.close()
    machine.stop()
    late = [election.join() for election in elections]
    time.sleep(DOWN)
    machine.start()
    led_again(elections, starts, within=AGAIN)
    for election, pid in zip(elections, late, strict=True):
        # it stands like all others: it leads when those who lead before it have gone
        while (leading := until(election.led, within=AGAIN)) != pid:
            assert leading is not None
            before = election.starts
            election.resign(leading)
            led_again([election], [before], within=AGAIN)
        for _ in range(2):
            election.join()


def hand_over(elections: list[Election]) -> None:
    """(4) A leader that resigns is followed long before its lease is over."""
    for election in elections:
        before, leading = election.starts, election.led()
        assert leading is not None
        told = election.resign(leading)
        led_again([election], [before], within=AGAIN)
        assert election.log.entries(election.key, "start")[-1].moment - told < LEASE / 2
        election.join()


def lose_processes(elections: list[Election]) -> None:
    """A killed leader is followed after the next try of a candidate, or when its lease is over."""
    for election in elections:
        before, leading = election.starts, election.led()
        assert leading is not None
        killed = election.kill(leading)
        led_again([election], [before], within=AGAIN)
        after = election.log.entries(election.key, "start")[-1].moment - killed
        assert after < (RETRY + 1.0 if election.strategy == "session" else LEASE + 1.0)


def check_rate(arena: Arena) -> None:
    """Count the transactions of this database, which are single statements: those of the candidates."""
    counted = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
    time.sleep(1.2)  # sessions tell what they did once a second: that of their beginning
    first, began = arena.observer.rows(counted)[0][0], time.monotonic()
    time.sleep(1.5)
    rate = (arena.observer.rows(counted)[0][0] - first) / (time.monotonic() - began)
    tries = 2 / (0.75 * RETRY)
    allowed = sum(PER_TRY.values()) * tries + 2 / OPTIONS["heartbeat"]
    assert tries / 2 < rate < 1.1 * allowed, f"{rate} statements a second, not {allowed}"
