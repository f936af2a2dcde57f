"""Waiting for a key: look, then try, with pauses in between."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

from sqllocks.backends.port import Clock
from sqllocks.core.claiming import Claims
from sqllocks.core.naming import Names
from sqllocks.dialects.base import StoredLock, Want
from sqllocks.errors import BackendUnavailable, LockError, LockTimeout
from sqllocks.model import LockHandle
from sqllocks.policy import WAIT_CEILING, WAIT_FLOOR

__all__ = ["Waiting"]


class Waiting:
    """Waiters hold no connection between two looks."""

    def __init__(
        self,
        clock: Clock,
        claims: Claims,
        names: Names,
        look: Callable[[str, str], Awaitable[StoredLock | None]],
    ) -> None:
        self._clock = clock
        self._names = names
        self._claims = claims
        self._look = look

    async def wait_for(self, want: Want, longest: float | None) -> LockHandle:
        """Return the grant; raises ``LockTimeout``, or the last ``BackendUnavailable``, when time is over."""
        started = self._clock.now()
        pause = WAIT_FLOOR
        row: StoredLock | None = None
        while True:
            error: LockError | None = None
            try:
                if row is not None:  # look before the next try: a look writes nothing
                    row = await self._look(want.key, "wait for")
                if row is None or not row.held:
                    handle = await self._claims.claim(want)
                    if handle.acquired:
                        return handle
                    row = await self._look(want.key, "wait for")
            except BackendUnavailable as unavailable:  # it may pass before the wait is over
                error = unavailable
            left = None if longest is None else started + longest - self._clock.now()
            if left is not None and left <= 0:
                raise error or self._timeout(want, row, longest)
            await self._clock.sleep(_nap(pause, left, row))
            pause = min(pause * 1.5, WAIT_CEILING)

    def _timeout(self, want: Want, row: StoredLock | None, waited: float | None) -> LockTimeout:
        key = self._names.outer(want.key)
        holder = "somebody else"
        if row is not None:
            until = "" if row.held else "; an open transaction pins its row"
            since, expires = row.acquired_at.isoformat(), row.expires_at.isoformat()
            holder = f"{row.holder!r} since {since} (expires {expires}{until})"
        return LockTimeout(
            f"lock {key!r} is still held after a wait of {waited:g} s: by {holder}", details={"lock_key": key}
        )


def _nap(pause: float, left: float | None, row: StoredLock | None) -> float:
    """The next pause of a waiter: with jitter, not past its deadline, nor the lease's expiry."""
    nap = pause * random.uniform(0.5, 1.0)  # noqa: S311 - nothing secret
    if row is not None and row.held:
        nap = min(nap, max((row.expires_at - row.seen_at).total_seconds(), WAIT_FLOOR))
    return nap if left is None else min(nap, left)
