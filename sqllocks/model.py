"""The values that the library hands out."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

__all__ = ["LockHandle", "LockInfo", "Seconds"]

Seconds: TypeAlias = float | timedelta
"""A span of time: seconds as a number, or a ``timedelta``."""


@dataclass(frozen=True, slots=True)
class LockHandle:
    """The answer of an acquire: true where the lock was granted.

    ``owner_token`` is always the caller's own. ``expires_at`` (aware, UTC) and ``fencing_token``
    are those of the lock as stored: the caller's own after a grant, else the present holder's.
    """

    acquired: bool
    lock_key: str
    owner_token: str
    expires_at: datetime
    fencing_token: int

    def __bool__(self) -> bool:
        return self.acquired


@dataclass(frozen=True, slots=True)
class LockInfo:
    """Who holds a key since when: for people, so it never carries an owner token."""

    lock_key: str
    kind: Literal["lease", "session"]
    holder: str
    held: bool
    fencing_token: int | None
    acquired_at: datetime | None
    expires_at: datetime | None
