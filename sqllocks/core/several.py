"""Waiting for several keys at once: all or none, and of those in each other's way one gets through."""

from __future__ import annotations

import random
from collections.abc import Sequence

from sqllocks.backends.port import Clock
from sqllocks.core.claiming import Claims, Grant
from sqllocks.core.faults import busy
from sqllocks.core.waiting import Waiting
from sqllocks.dialects.base import Want
from sqllocks.policy import fresh_token

__all__ = ["Several"]

MOMENT = 1.0
"""Longest time for which a part of the keys is kept while others are tried for, in seconds."""
UNMOVED = 2
"""Tries that find the same holder again, before that one counts as here to stay."""
SHORTEST_PAUSE = 0.002


class Several:
    """Takes several keys; a waiter for them holds none meanwhile, but for a moment.

    It stands in the line of one busy key, and tries for the others when it has got that one. Two waiters
    may so have one key each and want that of the other. The order of the keys decides between them: whoever
    finds an earlier key busy gives everything back at once and waits for that one; whoever only misses later
    keys tries again for a moment. So one of them gets through, and the others meet in the line of the
    earliest key. If each gave back at once, they could go on in step with each other for ever.
    """

    def __init__(self, clock: Clock, claims: Claims, waiting: Waiting) -> None:
        self._clock = clock
        self._claims = claims
        self._waiting = waiting

    async def grant(self, wants: Sequence[Want], longest: float | None) -> list[Grant]:
        """Take all leases or none, or raise; ``wants`` are sorted by key, ``longest`` is in seconds."""
        started = self._clock.now()
        end = started + longest if longest is not None else float("inf")
        # nobody passes those who stand in line already
        first = next((want for want in wants if longest != 0 and self._waiting.awaited(want.key)), None)
        while True:
            if first is None:
                grants = await self._claims.claim_all(wants)
            else:
                got = await self._waiting.wait_for(first, longest, since=started)
                grants = await self._beside(got, [want for want in wants if want.key != got.want.key], end)
            refused = _refused(grants)
            if refused is None:
                return sorted(grants, key=lambda grant: grant.want.key)
            if longest == 0:
                raise busy(refused.handle)
            if self._clock.now() >= end:
                raise await self._waiting.late(refused, end - started)
            first = refused.want

    async def _beside(self, first: Grant, rest: Sequence[Want], end: float) -> list[Grant]:
        """Claim the rest beside the first; where that fails, the first is given back as well."""
        try:
            grants = await self._insist(first, rest, end) if rest else []
        except GeneratorExit:  # nothing may be awaited here
            raise
        except BaseException:
            await self._claims.undo([first.want])
            raise
        if _refused(grants) is not None:
            await self._claims.undo([first.want])
            return grants
        return [first, *grants]

    async def _insist(self, first: Grant, rest: Sequence[Want], end: float) -> list[Grant]:
        """Claim the rest, again where only later keys are busy and their holders may be about to yield."""
        end = min(end, first.sent + min(MOMENT, first.want.ttl / 4_000_000))
        unmoved, before = 0, None
        while True:
            asked = self._clock.now()
            grants = await self._claims.claim_all([_again(want) for want in rest])
            refused = _refused(grants)
            if refused is None or refused.want.key < first.want.key:
                return grants
            holder = (refused.want.key, refused.handle.fencing_token)
            unmoved, before = unmoved + 1 if holder == before else 0, holder
            now = self._clock.now()
            if unmoved == UNMOVED or now >= end:
                return grants
            # who is to yield has about as many statements to send, with the same delays
            pause = max(now - asked, SHORTEST_PAUSE)
            await self._clock.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - nothing secret


def _refused(grants: Sequence[Grant]) -> Grant | None:
    """Return the earliest key that somebody else holds; ``None`` where all were granted."""
    return next((grant for grant in grants if grant.busy), None)


def _again(want: Want) -> Want:
    """The same claim once more: another attempt, so that it is not taken for the one given back."""
    return want._replace(attempt=fresh_token())
