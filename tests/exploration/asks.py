"""What the core asks of the world at each await, and what the world may reply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from sqllocks.dialects.base import FaultKind, Result, Want
from sqllocks.dialects.guards import View

__all__ = [
    "Answered",
    "Ask",
    "Done",
    "Failed",
    "Guard",
    "Interrupted",
    "Join",
    "Leave",
    "Open",
    "Query",
    "Ready",
    "Reply",
    "Sleep",
    "TimedOut",
    "Viewed",
    "Wait",
    "Woken",
]


@dataclass(frozen=True, slots=True)
class Query:
    """A statement on a session that is open."""

    statement: str
    wants: tuple[Want, ...] = ()
    keys: tuple[str, ...] = ()
    idle: int = 0
    """Microseconds for which a row must have been free to be removed."""

    @property
    def kind(self) -> str:
        """What it does, in whatever form."""
        return "claim" if self.statement == "claim_free" else self.statement.removesuffix("_row")

    @property
    def writes(self) -> bool:
        return self.statement not in ("read", "lockers", "commits", "stale", "won", "own")

    def __str__(self) -> str:
        wanted = (f"{want.key} as {want.owner}/{want.attempt or '*'}" for want in self.wants)
        return f"{self.statement} {', '.join((*wanted, *self.keys))}"


@dataclass(frozen=True, slots=True)
class Open:
    """A new session, where none was kept."""

    def __str__(self) -> str:
        return "connect"


@dataclass(frozen=True, slots=True)
class Sleep:
    """A pause."""

    seconds: float

    def __str__(self) -> str:
        return f"sleep {self.seconds:g} s"


@dataclass(frozen=True, slots=True)
class Join:
    """The end of another strand, which nothing interrupts."""

    strand: int

    def __str__(self) -> str:
        return f"wait for strand {self.strand}"


@dataclass(frozen=True, slots=True)
class Wait:
    """A sleep that an event ends early."""

    seconds: float
    event: int

    def __str__(self) -> str:
        return f"wait for event {self.event} up to {self.seconds:g} s"


@dataclass(frozen=True, slots=True)
class Ready:
    """A task that may begin at any time."""

    def __str__(self) -> str:
        return "begin"


@dataclass(frozen=True, slots=True)
class Guard:
    """A transaction of the application proves a lease, and pins its row."""

    key: str

    def __str__(self) -> str:
        return f"guard {self.key}"


@dataclass(frozen=True, slots=True)
class Leave:
    """That transaction ends."""

    key: str

    def __str__(self) -> str:
        return f"end the transaction that guards {self.key}"


Ask: TypeAlias = Query | Open | Sleep | Join | Wait | Ready | Guard | Leave


@dataclass(frozen=True, slots=True)
class Answered:
    """The statement was carried out and its answer came."""

    result: Result


@dataclass(frozen=True, slots=True)
class Failed:
    """The statement, or the connecting, ended in a fault."""

    kind: FaultKind
    sent: bool = True


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Cancelled, or stopped from the keyboard, at this await."""


@dataclass(frozen=True, slots=True)
class Done:
    """Connected, slept, or joined."""


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The other strand goes on behind."""


@dataclass(frozen=True, slots=True)
class Woken:
    """The event was set."""


@dataclass(frozen=True, slots=True)
class Viewed:
    """What a guard saw."""

    view: View


Reply: TypeAlias = Answered | Failed | Interrupted | Done | TimedOut | Woken | Viewed
