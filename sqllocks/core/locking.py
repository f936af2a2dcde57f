"""Taking locks that end with a session, on whatever backend: the decisions behind lockers and electors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from sqllocks.core.claiming import Grant
from sqllocks.core.holding import Holding
from sqllocks.core.kept import Kept
from sqllocks.core.leases import Leases
from sqllocks.core.waiting import Pace
from sqllocks.dialects.base import Fault, Want

__all__ = ["Carrier", "Seat"]

ENDED = "the session that carried it has ended, or was ended because it was in doubt"


class Carrier(Protocol):
    """A backend whose locks end with a session."""

    lost: Callable[[Sequence[Want]], None]

    async def contact(self) -> None:
        """Open the session; raises ``Fault``, ``BackendUnsupported``."""
        ...

    def doubt(self, want: Want) -> None:
        """End the session of a lock that its holder does not trust any more."""
        ...

    def carries(self, want: Want) -> bool:
        """Return whether the session that took the lock is still the present one."""
        ...


@dataclass(slots=True, eq=False)
class Seat:
    """One way to hold a key for as long as one lives: ``ttl`` in microseconds, ``heartbeat`` in seconds."""

    leases: Leases
    holding: Holding
    ttl: int
    heartbeat: float
    carrier: Carrier | None = None

    def __post_init__(self) -> None:
        if self.carrier is not None:
            self.carrier.lost = lambda wants: self.holding.keeper.lose_all(wants, ENDED)

    async def contact(self) -> None:
        """Open the session that is to carry locks; raises ``BackendUnsupported`` where it can carry none."""
        if self.carrier is None:
            return
        try:
            await self.carrier.contact()
        except Fault as fault:
            raise self.leases.names.error(fault, "stand for election with", "") from fault.__cause__

    async def take(self, key: str, longest: float | None, pace: Pace | None = None) -> Kept:
        """Wait for the key and hold it; raises as ``require_acquire`` does."""
        return self._begin(await self.leases.grant(self._want(key), longest, pace))

    async def take_now(self, key: str) -> Kept | None:
        """Hold the key, or return ``None`` where it is held; never waits."""
        grant = await self.leases.claims.claim(self._want(key))
        return self._begin(grant) if grant.acquired else None

    def _want(self, key: str) -> Want:
        return self.leases.names.want(key, self.ttl / 1_000_000, None)

    def _begin(self, grant: Grant) -> Kept:
        if self.carrier is None:
            return self.holding.attend(grant, self.heartbeat)
        kept = self.holding.carry(grant, heartbeat=self.heartbeat, doubt=self.carrier.doubt)
        if not self.carrier.carries(kept.want):  # the session ended before anybody looked after the lock
            self.holding.keeper.lose(kept, ENDED)
        return kept
