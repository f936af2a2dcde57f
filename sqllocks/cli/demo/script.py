"""What happens to the workers: one holder is killed, another is frozen past its ttl and thawed."""

from __future__ import annotations

import enum

from sqllocks.cli.demo.board import Board
from sqllocks.cli.demo.crew import Crew
from sqllocks.cli.demo.events import Event, Kind
from sqllocks.cli.demo.history import History
from sqllocks.runtime import clock

__all__ = ["Script"]

KILL_AT, FREEZE_AT = 0.2, 0.4
"""When, as parts of the whole time."""
FRESH = 0.07
"""Seconds after a renewal within which its holder is sure to be at work: half of a step."""
REPLACED_AFTER = 1.5
FROZEN_FOR = 1.0
"""Seconds that a holder stays frozen after its lease is over, at least."""


class _Act(enum.Enum):
    KILL = enum.auto()
    FREEZE = enum.auto()
    THAW = enum.auto()
    SEE = enum.auto()
    DONE = enum.auto()


class Script:
    """Each act waits for its moment, so that it never hits a worker that holds nothing."""

    def __init__(self, crew: Crew, board: Board, history: History) -> None:
        self._crew = crew
        self._board = board
        self._history = history
        self._act = _Act.KILL
        self._due: dict[_Act, float] = {}
        self._killed = 0
        self._replace_at = float("inf")
        self._frozen: Event | None = None
        self._thaw_at = float("inf")
        self._superseded = False

    def begin(self, seconds: float) -> float:
        """Plan for that many seconds from now; return the end."""
        start = clock.now()
        self._due = {_Act.KILL: start + KILL_AT * seconds, _Act.FREEZE: start + FREEZE_AT * seconds}
        return start + seconds

    @property
    def done(self) -> bool:
        """Whether everything has happened, down to the refusal of the late write."""
        return self._act is _Act.DONE and self._replace_at == float("inf")

    @property
    def frozen_token(self) -> int | None:
        """The token of the holder that was frozen."""
        return self._frozen.token if self._frozen else None

    def react(self, event: Event) -> None:
        """Act on an event whose moment has come."""
        holding = event.kind is Kind.RENEWED and clock.now() - event.at < FRESH
        if holding and clock.now() >= self._due.get(self._act, float("inf")):
            if self._act is _Act.KILL:
                self._kill(event)
            elif event.worker != self._killed:
                self._freeze(event)
        elif self._frozen and event.kind is Kind.WROTE and event.token > self._frozen.token:
            self._superseded = True
        elif self._frozen and event.kind is Kind.REFUSED and event.token == self._frozen.token:
            self._act = _Act.DONE

    def tick(self) -> None:
        """Do what only waits for the clock."""
        now = clock.now()
        if now >= self._replace_at:
            self._replace_at = float("inf")
            self._board.replaced(self._killed, self._crew.replace(self._killed))
        if self._act is _Act.THAW and self._frozen and self._superseded and now >= self._thaw_at:
            self._act = _Act.SEE
            self._crew.thaw(self._frozen.worker)
            self._board.thawed(self._frozen.worker)

    def _kill(self, event: Event) -> None:
        self._act = _Act.FREEZE
        self._killed = event.worker
        self._crew.kill(event.worker)
        self._history.kills += 1
        self._board.killed(event.worker)
        self._replace_at = clock.now() + REPLACED_AFTER

    def _freeze(self, event: Event) -> None:
        self._act = _Act.THAW
        self._frozen = event
        self._crew.freeze(event.worker)
        self._history.freezes += 1
        self._board.frozen(event.worker)
        self._thaw_at = event.until + FROZEN_FOR
