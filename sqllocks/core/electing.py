"""Standing for election: one leader at a time, term after term."""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from sqllocks.backends.port import Clock
from sqllocks.core.kept import Kept
from sqllocks.core.locking import Seat
from sqllocks.core.waiting import Pace, Stopped
from sqllocks.errors import BackendUnsupported, LockError, LockValidationError, SchemaMissing

__all__ = ["Campaign"]

logger = logging.getLogger("sqllocks")

_HOPELESS = (BackendUnsupported, LockValidationError, SchemaMissing)
"""What no waiting mends; at the first contact it leaves ``run``."""
RELEASE_LIMIT = 5.0
"""Seconds after which a resignation that hangs is given up and the session ended."""
TOLD_AGAIN = 60.0
"""Seconds between two warnings of one candidate that the database does not answer."""

Perform = Callable[[Seat, Kept], Awaitable[BaseException | None]]
"""Runs the callback of one term to its end; returns what it raised."""


@dataclass(slots=True)
class _Complaints:
    """The failures of one candidate, told at first and then now and then."""

    clock: Clock
    key: str
    last: float = float("-inf")
    failures: int = 0

    def about(self, error: LockError) -> None:
        self.failures += 1
        now = self.clock.now()
        if now - self.last >= TOLD_AGAIN:
            self.last = now
            logger.warning("candidate for %r goes on trying (%d): %s", self.key, self.failures, error.message)


class Campaign:
    """The candidates of one elector. ``choose`` returns how a key is held, and may ask the database first."""

    def __init__(self, clock: Clock, choose: Callable[[], Awaitable[Seat]], *, retry: float) -> None:
        self._clock = clock
        self._choose = choose
        self._retry = retry
        self._contact = False

    async def run(
        self,
        key: str,
        perform: Perform,
        *,
        stopped: Callable[[], bool] | None = None,
        on_error: Callable[[BaseException], Awaitable[None]] | None = None,
    ) -> None:
        """Stand, lead, stand again, until stopped or cancelled."""
        complaints = _Complaints(self._clock, key)
        pace = Pace(self._retry, stopped, complaints.about, self._met)
        while stopped is None or not stopped():
            try:
                seat = await self._choose()
                kept = await seat.take(key, None, pace)
            except Stopped:
                return
            except LockError as problem:
                if isinstance(problem, _HOPELESS) and not self._contact:
                    raise
                complaints.about(problem)
                await self._pause(self._retry, stopped)
                continue
            if stopped is not None and stopped():  # while the answer was on its way
                await self._resign(seat, kept, key)
                return
            complaints.last = float("-inf")
            began = self._clock.now()
            error = await self._lead(seat, kept, key, perform)
            if error is not None:
                if on_error is None:
                    raise error
                await on_error(error)
            brief = error is not None or self._clock.now() - began < self._retry
            # others get their chance, and a callback that returns at once does not spin
            await self._pause(self._retry if brief else min(self._retry, 0.1), stopped)

    def _met(self) -> None:
        self._contact = True

    async def _lead(self, seat: Seat, kept: Kept, key: str, perform: Perform) -> BaseException | None:
        logger.info("elected leader of %r (token %d)", key, kept.token)
        try:
            return await perform(seat, kept)
        finally:
            await self._resign(seat, kept, key)

    async def _resign(self, seat: Seat, kept: Kept, key: str) -> None:
        alarm = self._clock.alarm(RELEASE_LIMIT, lambda: _cut(seat, kept))
        try:
            await seat.holding.end([kept], None)
        except LockError as problem:
            # told as a loss already, or the session went and took the lock with it
            logger.info("leadership of %r ended: %s", key, problem.message)
        else:
            logger.info("resigned as leader of %r", key)
        finally:
            alarm.cancel()

    async def _pause(self, seconds: float, stopped: Callable[[], bool] | None) -> None:
        end = self._clock.now() + seconds * random.uniform(0.75, 1.0)  # noqa: S311 - nothing secret
        while (left := end - self._clock.now()) > 0:
            if stopped is not None and stopped():
                return
            await self._clock.sleep(left if stopped is None else min(left, 0.1))


def _cut(seat: Seat, kept: Kept) -> None:
    if seat.carrier is not None:
        seat.carrier.doubt(kept.want)
