"""The workers of the demo as a spectator sees them."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from sqllocks.cli.demo.events import Event, Kind

__all__ = ["Board", "Mark", "Row", "State"]


class State(enum.StrEnum):
    """What a worker is doing."""

    STARTING = "starting"
    WAITING = "waiting"
    HOLDING = "holding"
    FROZEN = "frozen"
    KILLED = "killed"
    ENDED = "ended"


class Mark(enum.StrEnum):
    """How a line stands out, as a style of rich."""

    ROUTINE = ""
    KILL = "red"
    FREEZE = "cyan"
    REFUSED = "bold green"
    TROUBLE = "bold yellow"


@dataclass(slots=True)
class Row:
    """One worker; counts go on when a killed process is replaced."""

    worker: int
    pid: int = 0
    state: State = State.STARTING
    token: int | None = None
    until: float = 0.0
    """How long its lease may be trusted, where it has one."""
    grants: int = 0
    writes: int = 0
    refused: int = 0


class Board:
    """Turns events into rows, and the notable ones into lines of text."""

    def __init__(self, workers: int, note: Callable[[str, Mark], None]) -> None:
        self.rows = {number: Row(number) for number in range(1, workers + 1)}
        self._note = note

    def add(self, event: Event) -> None:
        """Take note of an event."""
        row = self.rows[event.worker]
        match event.kind:
            case Kind.READY:
                row.pid, row.state = event.pid, State.WAITING
            case Kind.GRANTED:
                row.state, row.token, row.until = State.HOLDING, event.token, event.until
                row.grants += 1
                self._note(f"worker {row.worker} holds the key, token {event.token}", Mark.ROUTINE)
            case Kind.RENEWED:
                row.until = event.until
            case Kind.WROTE:
                row.writes += 1
            case Kind.REFUSED:
                row.refused += 1
                self._give_up(row)
                self._note(
                    f"worker {row.worker} wrote too late: refused, token {event.token} is stale",
                    Mark.REFUSED,
                )
            case Kind.RELEASED | Kind.LOST:
                self._give_up(row)
            case Kind.TROUBLE:
                self._note(f"worker {row.worker}: {event.text}", Mark.TROUBLE)
            case Kind.ENDED:
                # of a killed one it is known, and its successor may have the row by now
                if row.state not in (State.KILLED, State.STARTING) or not row.pid:
                    row.state = State.ENDED
                    self._note(f"worker {row.worker} has ended by itself", Mark.TROUBLE)

    @property
    def complete(self) -> bool:
        """Whether every worker has begun, if only to end."""
        return all(row.state != State.STARTING for row in self.rows.values())

    def end(self) -> None:
        """Show that all processes have ended, as they should."""
        for row in self.rows.values():
            row.state, row.token = State.ENDED, None

    def killed(self, worker: int) -> None:
        """Show that a worker was killed while it held the key."""
        row = self.rows[worker]
        row.state = State.KILLED
        self._note(f"worker {worker} is killed while it holds the key: its lease has to run out", Mark.KILL)

    def replaced(self, worker: int, pid: int) -> None:
        """Show that a new process does the work of a killed one."""
        row = self.rows[worker]
        row.pid, row.state, row.token = pid, State.STARTING, None
        self._note(f"worker {worker} is replaced by a new process", Mark.KILL)

    def frozen(self, worker: int) -> None:
        """Show that a worker was frozen while it held the key."""
        self.rows[worker].state = State.FROZEN
        self._note(f"worker {worker} is frozen while it holds the key, and does not know it", Mark.FREEZE)

    def thawed(self, worker: int) -> None:
        """Show that a frozen worker goes on."""
        self.rows[worker].state = State.HOLDING
        self._note(f"worker {worker} goes on, and still believes that it holds the key", Mark.FREEZE)

    @staticmethod
    def _give_up(row: Row) -> None:
        row.state, row.token = State.WAITING, None
