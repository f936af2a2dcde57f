"""The life of a held lease from grant to the end of its block."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence

from sqllocks.backends.port import Clock
from sqllocks.core.claiming import Grant
from sqllocks.core.keeping import Keeper
from sqllocks.core.kept import Kept
from sqllocks.core.naming import Names
from sqllocks.core.pinning import Pinning
from sqllocks.core.releasing import Releases
from sqllocks.dialects.base import Want
from sqllocks.errors import BackendUnavailable, LeaseLost, LockError
from sqllocks.model import LockHandle, Seconds
from sqllocks.policy import checked_ttl, margin

__all__ = ["Holding"]

logger = logging.getLogger("sqllocks")


class Holding:
    """What the blocks and leases of one provider do."""

    def __init__(
        self, clock: Clock, keeper: Keeper, pinning: Pinning, releases: Releases, names: Names
    ) -> None:
        self._clock = clock
        self._releases = releases
        self._pinning = pinning
        self.keeper = keeper
        self.names = names

    def begin(self, grant: Grant, *, renew: bool, at_least: int) -> Kept:
        """Begin to look after a fresh grant."""
        now = self._clock.now()
        kept = Kept.of(grant.want, grant.handle, grant.sent, now=now, renew=renew, at_least=at_least)
        self.keeper.keep(kept)
        return kept

    def attend(self, grant: Grant, every: float) -> Kept:
        """Begin to look after a lease that is renewed more often than its ttl asks for."""
        kept = self.begin(grant, renew=True, at_least=0)
        kept.every = every
        kept.due = grant.sent + every
        self.keeper.rescheduled(kept)
        return kept

    def carry(self, grant: Grant, *, heartbeat: float, doubt: Callable[[Want], None]) -> Kept:
        """Begin to look after a session lock; ``doubt`` ends its session where it is not trusted any more."""
        now = self._clock.now()
        kept = Kept.of(grant.want, grant.handle, grant.sent, now=now, renew=True, at_least=0)
        kept.every, kept.heartbeat = heartbeat, True
        kept.due = grant.sent + heartbeat
        kept.doubt = lambda: doubt(kept.want)
        self.keeper.keep(kept)
        return kept

    def check(self, kept: Kept) -> None:
        """Raise ``LeaseLost`` unless the lease is still held."""
        if kept.ended or self.keeper.is_lost(kept):
            raise self._lost(kept)

    def on_lost(self, kept: Kept, callback: Callable[[], None]) -> None:
        """Register a callback, or call it at once."""
        kept.callbacks.append(callback)
        # a loss between the look and the registration has taken its list of callbacks with it
        if self.keeper.is_lost(kept) and callback in kept.callbacks:
            kept.callbacks.remove(callback)
            self.keeper.call(callback)

    async def extend(self, kept: Kept, ttl: Seconds) -> LockHandle:
        """Set another ttl; the belief never runs ahead of what may be stored."""
        want = kept.want._replace(ttl=checked_ttl(ttl))
        self.check(kept)
        sent = self._clock.now()
        kept.want = want
        self.keeper.sending(kept)
        # should the answer be lost, the shorter of the two expiries counts
        kept.deadline = min(kept.deadline, sent + want.ttl / 1_000_000 - margin(want.ttl))
        handle: LockHandle | None = None
        try:
            handle = await self._releases.extend(want)
        finally:
            if handle is None:
                self.keeper.undecided(kept)
        if handle is None:
            self.keeper.lose(kept, "it expired, was broken, or somebody else holds the key")
            raise self._lost(kept)
        self.keeper.renewed(kept, want, sent, handle.expires_at)
        self.keeper.rescheduled(kept)
        return handle

    async def release(self, kept: Kept) -> bool:
        """Give it back; what cannot be settled now is tried further in the background."""
        return (await self._release([kept]))[0]

    async def _release(self, block: Sequence[Kept]) -> list[bool]:
        """Give back in one statement what this process still holds of a block."""
        mark = object()
        self.keeper.ending[mark] = None
        try:
            return await self._give_back(block)
        finally:
            self.keeper.ending.pop(mark, None)

    async def _give_back(self, block: Sequence[Kept]) -> list[bool]:
        here = [kept for kept in block if kept.pid == os.getpid() and self.keeper.let_go(kept)]
        for kept in here:
            kept.ended = True
        released = {id(kept): True for kept in here if self._pinning.postponed(kept.release)}
        now = [kept for kept in here if id(kept) not in released]
        if now:
            try:
                answers = await self._releases.release_all([kept.release for kept in now])
            except BackendUnavailable:
                for kept in now:
                    self.keeper.release_later(kept.release, kept.want.ttl)
                raise
            released |= {id(kept): answer for kept, answer in zip(now, answers, strict=True)}
        return [released.get(id(kept), False) for kept in block]

    async def end(
        self, block: Sequence[Kept], error: BaseException | None, *, cause: BaseException | None = None
    ) -> None:
        """End a block: give back, and let the body's own exception win over anything met here."""
        open_ = [kept for kept in block if not kept.ended]
        problem: LockError | None = None
        try:
            for kept in open_:
                self.keeper.is_lost(kept)
            for kept, released in zip(open_, await self._release(open_), strict=True):
                if not released and problem is None:
                    kept.lost = kept.lost or "it expired, was broken, or somebody else holds the key"
                    problem = self._lost(kept)
        except LockError as failure:
            problem = failure
        if problem is None:
            return
        if error is None:
            raise problem from (cause or problem.__cause__)
        error.add_note(f"while this was raised: {problem}")

    async def close(self, timeout: float | None) -> None:
        """Renew until the bodies end or the time is over, then give back what is left."""
        await self.keeper.drained(timeout)
        for kept in self.keeper.kept():
            # its body, which goes on, is told before anybody else can have the key
            if self.keeper.lose(kept, "its provider was closed", doubted=False):
                await self._releases.give_back(kept.release)

    def _lost(self, kept: Kept) -> LeaseLost:
        key = self.names.outer(kept.want.key)
        why = kept.lost or "it was given back"
        return LeaseLost(
            f"lock {key!r} (token {kept.token}) is not held any more: {why}. Stop the work that it protects.",
            details={"lock_key": key},
        )
