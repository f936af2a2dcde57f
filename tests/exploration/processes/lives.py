"""Lives: what the real core did so far in one process, given everything that it was replied.

As an episode of a single call, a life is the list of its replies and their moments; going on with it
means to play it again with one more, once for each list however many schedules share it.
"""

from __future__ import annotations

import itertools
import logging
import random
import secrets
import warnings
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple
from unittest import mock

from sqllocks.core import naming
from sqllocks.core.kept import Kept
from tests.exploration.asks import Ask, Failed, Interrupted, Join, Reply, Wait
from tests.exploration.processes.port import ProcessPort, due
from tests.exploration.processes.programs import Scenario
from tests.exploration.processes.tasks import Process
from tests.exploration.violation import Violation

__all__ = ["ALARM", "Belief", "Cue", "Life", "Lives", "Pending"]

AT_ONCE = 200
"""Processes that are kept for going on; a search that goes deep first needs the last few."""
LONGEST = 150
"""Most replies that a process may need."""
ALARM = 1000
"""Alarms are numbered from here, strands below."""


class Cue(NamedTuple):
    """One reply: to which strand (or alarm), and when."""

    strand: int
    now: int
    reply: Reply | None


class Pending(NamedTuple):
    """What a strand asks; until when it sleeps, or whether it was woken."""

    strand: int
    ask: Ask | None
    due: int | None
    woken: bool = False


class Belief(NamedTuple):
    """What the process believes of a lease that it holds."""

    key: str
    owner: str
    attempt: str
    token: int
    until: int
    """The end of the trust window, by the local clock."""
    expires: int
    pins: int
    kept: bool
    """The keeper looks after it."""
    lost: bool
    told: int
    """How often its loss was told."""
    changing: bool
    """A change of its expiry is under way."""


@dataclass(slots=True)
class _Run:
    """A process that can go on."""

    port: ProcessPort
    process: Process
    names: Iterator[str]
    said: set[str] = field(default_factory=set[str])
    tasks: int = 0


class Life:
    """A process up to some reply; lives with the same cues are one object."""

    def __init__(self, name: str, cues: tuple[Cue, ...], run: _Run) -> None:
        self.name = name
        self.cues = cues
        self.pending = tuple(_pending(run.port))
        self.beliefs = tuple(_belief(run.process, kept) for kept in run.process.begun)
        self.facts = tuple(run.process.facts)
        self.tasks = run.tasks
        self.complained = frozenset(run.said)
        """Warnings of the core."""
        self.troubled = any(isinstance(cue.reply, Failed | Interrupted) for cue in cues)
        self.next: dict[Cue, Life] = {}


class Lives(logging.Handler):
    """Plays lives, each once.

    The process of a life stays as it is for whoever goes on from there first; only a second way
    from the same life plays it again from its beginning.
    """

    def __init__(self, scenario: Scenario) -> None:
        super().__init__()
        self._scenario = scenario
        self._running: OrderedDict[Life, _Run] = OrderedDict()
        self._present: _Run | None = None

    def born(self, place: int) -> Life:
        """Start a process."""
        name = "ABCDEFGH"[place]
        return self._life(name, (), self._begun(place, name))

    def after(self, place: int, life: Life, cue: Cue) -> Life:
        """Go on with one more reply."""
        if cue not in life.next:
            if len(life.cues) > LONGEST:
                raise Violation(f"{life.name} goes on without end")
            run = self._running.pop(life, None) or self._again(place, life)
            self._play(run, cue)
            life.next[cue] = self._life(life.name, (*life.cues, cue), run)
        return life.next[cue]

    @contextmanager
    def ready(self) -> Iterator[None]:
        """Take chance away from the core while it is played."""
        logger = logging.getLogger("sqllocks")
        logger.addHandler(self)
        try:
            with (
                mock.patch.object(random, "uniform", lambda low, high: high),
                mock.patch.object(secrets, "token_hex", self._next_name),
                mock.patch.object(naming, "fresh_tokens", self._next_names),
                mock.patch.object(logger, "propagate", new=False),
                warnings.catch_warnings(),
            ):
                warnings.simplefilter("ignore", ResourceWarning)
                yield
                for run in self._running.values():
                    run.port.close()
        finally:
            logger.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if self._present is not None:
            self._present.said.add(record.getMessage())

    def _next_name(self, _: int | None = None) -> str:
        assert self._present is not None
        return next(self._present.names)

    def _next_names(self) -> tuple[str, str]:
        return self._next_name(), self._next_name()

    def _again(self, place: int, life: Life) -> _Run:
        run = self._begun(place, life.name)
        for cue in life.cues:
            self._play(run, cue)
        return run

    def _begun(self, place: int, name: str) -> _Run:
        scenario = self._scenario
        port = ProcessPort(scenario.family, scenario.form)
        names = (f"{name}{number}" for number in itertools.count(1))
        leases, holding = scenario.makes(port, scenario.family, name)
        run = self._present = _Run(port, Process(port, leases, holding, name), names)
        for task in scenario.programs[place]:
            port.spawn(task(run.process))
        run.tasks = len(scenario.programs[place])
        return run

    def _play(self, run: _Run, cue: Cue) -> None:
        self._present = run
        run.port.time = cue.now
        if cue.strand >= ALARM:
            run.port.ring(cue.strand - ALARM)
        else:
            assert cue.reply is not None
            run.port.resume(cue.strand, cue.reply)

    def _life(self, name: str, cues: tuple[Cue, ...], run: _Run) -> Life:
        life = Life(name, cues, run)
        self._running[life] = run
        if len(self._running) > AT_ONCE:
            _, oldest = self._running.popitem(last=False)
            self._present = oldest
            oldest.port.close()
        for strand in run.port.strands:
            if isinstance(strand.error, Exception) and not self._scenario.expects(strand.error):
                raise Violation(f"{name} raises {strand.error!r}") from strand.error
        return life


def _pending(port: ProcessPort) -> Iterator[Pending]:
    for strand in port.strands:
        ask = strand.ask
        if ask is not None and not isinstance(ask, Join):
            woken = isinstance(ask, Wait) and ask.event in port.flags
            yield Pending(strand.number, ask, due(ask, strand.since), woken)
    for number, alarm in enumerate(port.alarms):
        if not alarm.over:
            yield Pending(ALARM + number, None, alarm.due)


def _belief(process: Process, kept: Kept) -> Belief:
    want = kept.want
    return Belief(
        want.key,
        want.owner,
        want.attempt,
        kept.token,
        round(kept.deadline * 1_000_000),
        round(kept.expires_at.timestamp() * 1_000_000),
        kept.pins,
        any(kept is other for other in process.holding.keeper.kept()),
        bool(kept.lost),
        process.told.get((want.key, kept.token), 0),
        kept.crossed or kept.in_flight > 0,
    )
