"""Releases that could not be settled at once: tried further for as long as their lease can last."""

from __future__ import annotations

from dataclasses import dataclass

from sqllocks.backends.base import LeaseBackend
from sqllocks.backends.port import Clock
from sqllocks.core.kept import NEVER
from sqllocks.dialects.base import Fault, Verdict, Want
from sqllocks.errors import LockError
from sqllocks.policy import PENDING_PAUSE

__all__ = ["PendingReleases"]

LONGEST_PAUSE = 1.0


@dataclass(slots=True)
class _Pending:
    want: Want
    until: float
    due: float
    pause: float = PENDING_PAUSE / 2


class PendingReleases:
    """What one keeper has still to give back."""

    def __init__(self, clock: Clock, backend: LeaseBackend) -> None:
        self._clock = clock
        self._backend = backend
        self._pending: dict[tuple[str, str, str], _Pending] = {}

    @property
    def some(self) -> bool:
        """Whether there is any."""
        return bool(self._pending)

    def add(self, want: Want, ttl: int) -> None:
        """Try from now on, for at most ``ttl`` microseconds."""
        now = self._clock.now()
        self._pending[want.key, want.owner, want.attempt] = _Pending(want, now + ttl / 1_000_000, now)

    def forget(self, key: str, owner: str) -> None:
        """Give up a release of any attempt."""
        self._pending.pop((key, owner, ""), None)

    def clear(self) -> None:
        """Forget all: in a forked child they are the parent's."""
        self._pending = {}

    async def try_due(self) -> float:
        """Try those whose time has come; return when the next one's comes."""
        for name, pending in list(self._pending.items()):
            if pending.due > self._clock.now():
                continue
            try:
                answers = await self._backend.release([pending.want])
                settled = answers[pending.want.key].verdict is not Verdict.SKIPPED
            except (Fault, LockError):
                settled = False
            if settled or self._clock.now() >= pending.until:
                self._pending.pop(name, None)
            pending.pause = min(pending.pause * 2, LONGEST_PAUSE)
            pending.due = self._clock.now() + pending.pause
        return min((pending.due for pending in list(self._pending.values())), default=NEVER)
