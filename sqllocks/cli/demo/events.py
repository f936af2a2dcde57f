"""What the processes of the demo tell each other: lines of JSON through pipes."""

from __future__ import annotations

import enum
import json
from dataclasses import asdict, dataclass

__all__ = ["TTL", "Event", "Kind", "Settings"]

TTL = 1.0
"""Time to live of the leases of the demo: short, so that a spectator sees one run out."""


class Kind(enum.StrEnum):
    """What a worker did, or what became of it."""

    READY = "ready"
    GRANTED = "granted"
    RENEWED = "renewed"
    WROTE = "wrote"
    REFUSED = "refused"
    RELEASED = "released"
    LOST = "lost"
    TROUBLE = "trouble"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened to one worker."""

    kind: Kind
    worker: int
    pid: int
    at: float = 0.0
    """By the monotonic clock, which all processes of a machine share."""
    token: int = 0
    until: float = 0.0
    """How long the holder trusts its lease without another renewal, by the same clock."""
    text: str = ""

    def line(self) -> str:
        """Return the event as a line for a pipe."""
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def of_line(cls, line: str) -> Event:
        """Return the event that a line tells."""
        values = json.loads(line)
        return cls(Kind(values.pop("kind")), **values)


@dataclass(frozen=True, slots=True)
class Settings:
    """What a worker has to know; goes by its stdin, because a URL may hold a password."""

    worker: int
    url: str
    table: str
    schema: str | None
    key: str
    ledger: str

    def line(self) -> str:
        """Return the settings as a line for a pipe."""
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def of_line(cls, line: str) -> Settings:
        """Return the settings that a line tells."""
        return cls(**json.loads(line))
