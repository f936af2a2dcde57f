"""How soon a leader's end is known to itself, and followed by the next one.

    python -m benchmarks.elections [postgresql] [mysql] [mariadb] [--strategy session,lease] [--retry 0.5,2]

Two candidates in two processes, each with the server's next driver and form in turn. The leader resigns, its
process or its session is killed, it freezes, its network falls silent, or its server is restarted; on
PostgreSQL a standby is promoted when the primary has died (candidates then are told the new address, as a
proxy would). Prints, in seconds, how long after that the leader knew ("-": it cannot, or only when it ran
again) and the next one led.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import make_url

from tests.conformance.observing import Observer
from tests.conformance.polling import until
from tests.faults import Relay
from tests.scenarios import electing, locking
from tests.scenarios.arena import Arena
from tests.scenarios.electing import Log
from tests.scenarios.targets import Target
from tests.scenarios.workers import Worker
from tests.servers import LocalServer, launch
from tests.servers.standby import Standby
from tests.servers.urls import driverless

PATIENCE = 120.0
WAYS = "resigns,process_killed,session_killed,frozen,network_silent,server_restarted,promoted"
Took = tuple[float | None, float]
"""Seconds until the leader knew, and until the next one led."""


class Candidate:
    """One process that stands, through a relay of its own."""

    def __init__(self, arena: Arena, target: Target, log: Log, key: str, options: dict[str, Any]) -> None:
        url = make_url(target.address)
        self.relay = Relay(url)
        self.target = Target(self.relay.address, target.asyncio)
        self._options = options
        (self._worker,) = arena.processes(1)
        self._log, self._key = log, key
        self.pid = self._worker.run(os.getpid)
        self.stand()

    @property
    def worker(self) -> Worker:
        return self._worker

    def stand(self) -> None:
        self._worker.run(electing.stand, self.target, self._key, str(self._log.path), **self._options)

    def resign(self) -> None:
        self._worker.run(electing.resign, self._key)


class Election:
    """Two candidates of one key, on one server, by one strategy."""

    def __init__(
        self, arena: Arena, server: LocalServer, path: Path, *, strategy: str, retry: float, lease: float
    ) -> None:
        self.arena = arena
        self.server = server
        self.strategy = strategy
        self.retry = retry
        self.lease = lease
        self.key = arena.key(strategy)
        self.log = Log(path / f"terms-{self.key}")
        self.options: dict[str, Any] = {
            "strategy": strategy,
            "retry": retry,
            "lease": lease,
            "heartbeat": lease / 3,
        }
        self._made = 0
        self.candidates: dict[int, Candidate] = {}
        for _ in range(2):
            self.join()

    def join(self) -> None:
        self._made += 1
        target = self.arena.targets(self._made)[-1]
        candidate = Candidate(self.arena, target, self.log, self.key, self.options)
        self.candidates[candidate.pid] = candidate

    def leader(self) -> Candidate:
        """Return the leader, when both have come to rest at a random moment of the other's pause."""
        pid = until(partial(self.log.leader, self.key), within=PATIENCE)
        assert pid is not None
        time.sleep(self.retry * (2 + random.random()))
        return self.candidates[pid]

    def followed(self, moment: float, former: int, *, knows: bool) -> Took:
        """Return the seconds from a moment until the leader knew, and until there was the next one."""
        start = until(lambda: self._after("start", moment), within=PATIENCE)[-1]
        known = None
        if knows:
            ended = until(lambda: self._after("stop", moment, pid=former), within=PATIENCE)[0]
            told = self._after("invalid", moment, pid=former)
            known = (told[0] if told else ended).moment - moment
        return known, start.moment - moment

    def _after(self, event: str, moment: float, *, pid: int | None = None) -> list[electing.Entry]:
        return [entry for entry in self.log.entries(self.key, event, pid=pid) if entry.moment > moment]

    def end(self) -> None:
        for candidate in self.candidates.values():
            candidate.resign()
            candidate.relay.__exit__(None, None, None)

    # -- ways to end

    def resigns(self) -> Took:
        leader = self.leader()
        moment = time.monotonic()
        leader.resign()
        took = self.followed(moment, leader.pid, knows=False)
        leader.stand()
        return took

    def process_killed(self) -> Took:
        leader = self.leader()
        moment = time.monotonic()
        os.kill(leader.pid, signal.SIGKILL)
        took = self.followed(moment, leader.pid, knows=False)
        del self.candidates[leader.pid]
        self.join()
        return took

    def session_killed(self) -> Took:
        leader = self.leader()
        session = locking.carrier(self.arena.observer, f"election:{self.key}")
        assert session is not None
        return self.followed(locking.kill(self.arena.observer, session), leader.pid, knows=True)

    def frozen(self) -> Took:
        leader = self.leader()
        moment = time.monotonic()
        os.kill(leader.pid, signal.SIGSTOP)
        try:
            return self.followed(moment, leader.pid, knows=False)
        finally:
            os.kill(leader.pid, signal.SIGCONT)

    def network_silent(self) -> Took:
        leader = self.leader()
        moment = time.monotonic()
        leader.relay.fall_silent()
        try:
            return self.followed(moment, leader.pid, knows=True)
        finally:
            leader.relay.pass_on()

    def server_restarted(self) -> Took:
        leader = self.leader()
        self.arena.observer.close()
        moment = time.monotonic()
        self.server.restart()
        return self.followed(moment, leader.pid, knows=True)

    def promoted(self) -> Took:
        """The primary dies and its standby takes over, at the same address as far as candidates know."""
        assert isinstance(self.server, Standby)
        leader = self.leader()
        self.server.catch_up()
        moment = time.monotonic()
        self.server.primary.kill()
        new = make_url(self.server.url)
        self.server.promote()
        for candidate in self.candidates.values():
            candidate.relay._server = ("127.0.0.1", new.port or 0)
        self.arena.observer.close()
        url = driverless(self.server.url).set(database=self.arena.url.database)
        self.arena.observer = Observer(self.arena.kinds[0], url)
        return self.followed(moment, leader.pid, knows=True)


def shown(values: Sequence[float | None]) -> str:
    """Return median and greatest of the seconds."""
    known = [value for value in values if value is not None]
    return f"{statistics.median(known):.3f} | {max(known):.3f}" if known else "- | -"


def row(election: Election, way: Callable[[], Took], name: str, rounds: int) -> str:
    """Measure one way to end; return its row of the table."""
    took = [way() for _ in range(rounds)]
    return (
        f"| {name} | {election.strategy} | {election.retry:g} | {election.lease:g} "
        f"| {way.__name__.replace('_', ' ')} | {rounds} | {shown([knew for knew, _ in took])} "
        f"| {shown([led for _, led in took])} |"
    )


def measure(name: str, arguments: argparse.Namespace, strategy: str, retry: float) -> None:
    """Print the rows of one server, strategy and retry."""
    with ExitStack() as stack:
        server = stack.enter_context(launch(name))
        assert isinstance(server, LocalServer)
        path = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        arena = Arena(name, server, stack)
        election = Election(arena, server, path, strategy=strategy, retry=retry, lease=arguments.lease)
        slow = max(arguments.rounds // 3, 1)
        ways = {
            election.resigns: arguments.rounds,
            election.process_killed: arguments.rounds,
            election.session_killed: arguments.rounds if strategy == "session" else 0,
            election.frozen: slow,
            election.network_silent: slow,
            # a lease goes on where the server is back before it is over
            election.server_restarted: slow if strategy == "session" else 0,
        }
        for way, rounds in ways.items():
            if rounds and way.__name__ in arguments.ways.split(","):
                print(row(election, way, name, rounds), flush=True)
        election.end()


def measure_promotion(arguments: argparse.Namespace, strategy: str, retry: float) -> None:
    """Print the row of promoted standbys, each of a pair of its own."""
    took = []
    for _ in range(max(arguments.rounds // 6, 1)):
        with ExitStack() as stack:
            server = stack.enter_context(launch("standby"))
            assert isinstance(server, Standby)
            path = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            arena = Arena("postgresql", server.primary, stack)
            election = Election(arena, server, path, strategy=strategy, retry=retry, lease=arguments.lease)
            took.append(election.promoted())
            election.end()
    print(
        f"| postgresql | {strategy} | {retry:g} | {arguments.lease:g} | promoted | {len(took)} "
        f"| {shown([knew for knew, _ in took])} | {shown([led for _, led in took])} |",
        flush=True,
    )


def main() -> None:
    """Print a table for the servers that were named."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.elections", description=__doc__)
    parser.add_argument("servers", nargs="*", default=["postgresql", "mysql", "mariadb"])
    parser.add_argument("--strategy", default="session,lease")
    parser.add_argument("--retry", default="0.5,2", help="pauses of a candidate between two tries, seconds")
    parser.add_argument("--lease", type=float, default=3.0, help="seconds; the heartbeat is a third of it")
    parser.add_argument("--ways", default=WAYS, help="what ends a leader")
    parser.add_argument("--rounds", type=int, default=20, help="a third of them where one takes seconds")
    arguments = parser.parse_args()
    logging.getLogger("sqllocks").setLevel(logging.ERROR)
    print(
        "| server | strategy | retry | lease | the leader | rounds | it knew, p50 | max "
        "| next leader, p50 | max |\n|---|---|---|---|---|---|---|---|---|---|"
    )
    for name in arguments.servers:
        for strategy in arguments.strategy.split(","):
            for retry in (float(each) for each in arguments.retry.split(",")):
                measure(name, arguments, strategy, retry)
                if name == "postgresql" and "promoted" in arguments.ways:
                    measure_promotion(arguments, strategy, retry)


if __name__ == "__main__":
    main()
