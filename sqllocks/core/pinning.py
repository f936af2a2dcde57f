"""Leases whose row an open transaction of this process has locked, where renewals must wait for it.

On MySQL, MariaDB and SQLite the row lock of a guard stops the lease's own renewals and releases too.
Nobody can take the lease over meanwhile, its expiry notwithstanding; so its deadline is suspended, a
release is answered at once and carried out when the transaction has ended, and the first renewal of a
lease that is kept is sent then, before ``commit()`` returns.
"""

from __future__ import annotations

from functools import partial

from sqllocks.backends.base import LeaseBackend
from sqllocks.backends.port import Clock
from sqllocks.core.insist import Patience, insist
from sqllocks.core.keeping import Keeper
from sqllocks.core.kept import Kept
from sqllocks.dialects.base import Fault, Verdict, Want
from sqllocks.errors import LockError
from sqllocks.policy import LONGEST_RETRY, RELEASE_PATIENCE, UNPINNED_PATIENCE

__all__ = ["Pinning"]

UNANSWERED = "its ttl was over when the guarded transaction ended, and no renewal was answered"
REFUSED = "somebody else took it over when the guarded transaction ended"


class Pinning:
    """The pinned leases of one provider."""

    def __init__(self, clock: Clock, backend: LeaseBackend, keeper: Keeper) -> None:
        self._clock = clock
        self._backend = backend
        self._keeper = keeper
        self._open: dict[tuple[str, str], int] = {}
        self._releases: dict[tuple[str, str], list[Want]] = {}

    def pinned(self, key: str, owner: str, token: int) -> None:
        """Note that a transaction of this process has the row locked."""
        self._open[key, owner] = self._open.get((key, owner), 0) + 1
        for kept in self._keeper.find(key, owner, token):
            kept.pins += 1

    def postponed(self, want: Want) -> bool:
        """Return whether a release has to wait for a transaction, and was put off until its end."""
        if (want.key, want.owner) not in self._open:
            return False
        self._releases.setdefault((want.key, want.owner), []).append(want)
        return True

    async def unpinned(self, key: str, owner: str, token: int) -> None:
        """Do what had to wait: the release that was asked for, else the first renewal."""
        left = self._open.get((key, owner), 0) - 1
        if left > 0:
            self._open[key, owner] = left
        else:
            self._open.pop((key, owner), None)
            for want in self._releases.pop((key, owner), []):
                await self._release(want)
        for kept in self._keeper.find(key, owner, token):
            if left > 0:
                kept.pins -= 1
                continue
            # still suspended while it is asked: over the ttl it may be renewed only if nobody was quicker
            kept.refused = False
            alarm = self._clock.alarm(self._patience(kept), partial(self._unanswered, kept))
            try:
                await self._keeper.renew_now(kept)
            finally:
                alarm.cancel()
                kept.pins -= 1
            if kept.refused:
                self._keeper.lose(kept, REFUSED)

    def _unanswered(self, kept: Kept) -> None:
        self._keeper.lose(kept, UNANSWERED)

    def _patience(self, kept: Kept) -> float:
        return max(kept.deadline - self._clock.now(), UNPINNED_PATIENCE)

    async def _release(self, want: Want) -> None:
        try:
            patience = Patience(self._clock, RELEASE_PATIENCE)
            answers = await insist(patience, self._backend.release, [want])
            if answers[want.key].verdict is not Verdict.SKIPPED:
                return
        except (Fault, LockError):
            pass
        self._keeper.release_later(want, LONGEST_RETRY)
