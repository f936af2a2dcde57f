"""Episodes: what the real core did so far in one call, given everything that it was replied.

Coroutines cannot be copied, but the core decides by replies and clock readings alone. So an episode
is the list of both; going on with it means to play it again with one reply more, which happens
once for each list however many schedules share it.
"""

from __future__ import annotations

import logging
import random
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from unittest import mock

from sqllocks.core import naming
from sqllocks.errors import LockError
from tests.exploration.asks import Ask, Failed, Interrupted, Reply
from tests.exploration.port import Form, SteppingPort, Strand
from tests.exploration.programs import Kind, Operation, Scenario
from tests.exploration.violation import Violation

__all__ = ["Cue", "Episode", "Outcome", "Pending", "Script", "Stage"]


class Script(NamedTuple):
    """Which call an episode plays."""

    client: str
    number: int
    operation: Operation
    owner: str | None
    started: int


class Outcome(NamedTuple):
    """How a call ended: by a value, by a library error, or by its interruption."""

    value: object
    error: type[BaseException] | None = None
    told: object = None
    """``details["outcome"]`` of a library error, the text of another."""

    @property
    def interrupted(self) -> bool:
        return self.error is not None and not issubclass(self.error, LockError)


class Cue(NamedTuple):
    """One reply: to which strand, and when."""

    strand: int
    now: int
    reply: Reply


class Pending(NamedTuple):
    """What a strand asks, and since when."""

    strand: int
    ask: Ask
    since: int


class Episode:
    """A call up to some reply; episodes with the same script and cues are one object."""

    def __init__(
        self, script: Script, cues: tuple[Cue, ...], port: SteppingPort, *, complained: bool
    ) -> None:
        self.script = script
        self.cues = cues
        self.asks = tuple(
            Pending(strand.number, strand.ask, strand.since)
            for strand in port.strands
            if strand.ask is not None
        )
        self.outcome = _outcome(port.strands[0]) if port.strands[0].over else None
        claims = [query.wants[0].attempt for query in port.queries if query.kind == "claim"]
        # a waiter makes several claims, and gives up all but the last
        self.attempts = frozenset(claims[-1:] if script.operation.kind is Kind.WAIT else claims)
        self.troubled = any(isinstance(cue.reply, Failed) for cue in cues)
        self.interrupts = sum(isinstance(cue.reply, Interrupted) for cue in cues)
        # from the keyboard, the second stop hits the clean-up of the first
        self.tried = max(port.tried, script.started)
        self.cut_short = port.form is Form.BLOCKING and self.interrupts > 1
        self.complained = complained
        """Whether the core warned that it could not give back."""
        self.next: dict[Cue, Episode] = {}


class Stage(logging.Handler):
    """Plays episodes, each once."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__()
        self._scenario = scenario
        self._begun: dict[Script, Episode] = {}
        self._names: Iterator[str] = iter(())
        self._complained = False

    def begin(self, script: Script) -> Episode:
        """Start a call."""
        if script not in self._begun:
            self._begun[script] = self._play(script, ())
        return self._begun[script]

    def after(self, episode: Episode, cue: Cue) -> Episode:
        """Go on with one more reply."""
        if cue not in episode.next:
            episode.next[cue] = self._play(episode.script, (*episode.cues, cue))
        return episode.next[cue]

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
            ):
                yield
        finally:
            logger.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self._complained = True

    def _next_name(self, _: int | None = None) -> str:
        return next(self._names)

    def _next_names(self) -> tuple[str, str]:
        return next(self._names), next(self._names)

    def _play(self, script: Script, cues: tuple[Cue, ...]) -> Episode:
        scenario = self._scenario
        self._names = (f"{script.client}{script.number}{letter}" for letter in "abcdefghijklmnopqrstuvwxyz")
        self._complained = False
        port = SteppingPort(scenario.family, scenario.form)
        io, backend = scenario.makes(port, scenario.family)
        leases = scenario.core(io, backend, holder=script.client)
        port.time = script.started
        port.spawn(script.operation.run(leases, script.owner))
        for strand, now, reply in cues:
            port.time = now
            port.resume(strand, reply)
        episode = Episode(script, cues, port, complained=self._complained)
        try:
            port.close()
        except RuntimeError as error:
            raise Violation(f"a client that ends is not let go: {error}") from error
        return episode


def _outcome(strand: Strand) -> Outcome:
    error = strand.error
    if error is None:
        return Outcome(strand.value)
    told = error.details.get("outcome") if isinstance(error, LockError) else str(error)
    return Outcome(None, type(error), told)
