"""What this process believes of the leases that it holds."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqllocks.dialects.base import Want
from sqllocks.model import LockHandle
from sqllocks.policy import margin

__all__ = ["NEVER", "Kept"]

NEVER = float("inf")


@dataclass(slots=True, eq=False)
class Kept:
    """One lease in this process: what is believed of it, by the local monotonic clock."""

    want: Want
    token: int
    expires_at: datetime
    deadline: float
    """Up to this moment the lease is trusted: before sending + ttl − margin."""
    due: float
    """When it is to be renewed next; never for a lease that is not renewed."""
    zero: datetime
    """What the database's clock showed when the local clock showed 0, or less."""
    renewed: bool = True
    every: float | None = None
    """Seconds between two renewals, where it is not a third of the ttl."""
    heartbeat: bool = False
    """A renewal is also the sign of life of a session that carries locks: sent although a guard pins the
    row, and for all locks of the session at once."""
    at_least: int = 0
    """Microseconds that the key stays taken after the grant, released or not."""
    pid: int = field(default_factory=os.getpid)
    lost: str = ""
    """Why it was lost; empty while it is held."""
    in_flight: int = 0
    crossed: bool = False
    """Two changes of the expiry were under way at once, so the later answer need not be the stored one."""
    failures: int = 0
    refused: bool = False
    """The last renewal found it over."""
    pins: int = 0
    """Guarded transactions of this process that are open on it, where renewals must wait for them."""
    ended: bool = False
    """Given back by its holder."""
    callbacks: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])
    doubt: Callable[[], None] | None = None
    """Ends the session that carries it, where it is not trusted any more."""

    @classmethod
    def of(
        cls, want: Want, handle: LockHandle, sent: float, *, now: float, renew: bool, at_least: int
    ) -> Kept:
        """Return what is known right after a grant whose claim was sent at ``sent``."""
        due = sent + want.ttl / 3_000_000 if renew else NEVER
        deadline = sent + want.ttl / 1_000_000 - margin(want.ttl)
        return cls(
            want,
            handle.fencing_token,
            handle.expires_at,
            deadline,
            due,
            _zero(want, handle.expires_at, now),
            renewed=renew,
            at_least=at_least,
        )

    def shows(self, want: Want, expires_at: datetime | None, *, now: float, sent: float) -> None:
        """Note the expiry that a change set; where it was not told, one that is not after it."""
        if expires_at is None:
            self.expires_at = self.earliest(want, sent)
        else:
            self.expires_at = expires_at
            self.zero = _zero(want, expires_at, now)

    def earliest(self, want: Want, sent: float) -> datetime:
        """Return the earliest expiry that a change sent at ``sent`` can have set."""
        return self.zero + timedelta(seconds=sent, microseconds=want.ttl)

    @property
    def period(self) -> float:
        """Seconds between two renewals."""
        return self.want.ttl / 3_000_000 if self.every is None else self.every

    @property
    def release(self) -> Want:
        """What gives this very grant back."""
        return Want(self.want.key, self.want.owner, self.want.attempt, self.at_least)


def _zero(want: Want, expires_at: datetime, now: float) -> datetime:
    return expires_at - timedelta(seconds=now, microseconds=want.ttl)
