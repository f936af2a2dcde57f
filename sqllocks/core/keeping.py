"""Keeping leases: all that are due are renewed in one statement, and a loss is told exactly once."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Literal

from sqllocks.backends.base import Answers, LeaseBackend
from sqllocks.backends.port import Background, Clock
from sqllocks.core.kept import NEVER, Kept
from sqllocks.core.naming import Names
from sqllocks.core.pause import Pause
from sqllocks.core.pending import PendingReleases
from sqllocks.dialects.base import Answer, Fault, Verdict, Want
from sqllocks.errors import BackendUnavailable, LockError
from sqllocks.policy import DRAIN_PAUSE, RENEWAL_SLICE, margin

__all__ = ["Keeper"]

logger = logging.getLogger("sqllocks")

_BY_KEY = attrgetter("want.key")


class Keeper:
    """Renews the leases of one provider and process from one task or thread.

    Taking a lease out of ``_kept`` is one atomic step, and whoever takes it out decides its end: the
    one who gives it back, or the one who finds it lost.
    """

    def __init__(self, clock: Clock, backend: LeaseBackend, names: Names, background: Background) -> None:
        self._clock = clock
        self._backend = backend
        self._names = names
        self._background = background
        self._kept: dict[Kept, Literal[True]] = {}
        self._pending = PendingReleases(clock, backend)
        self._pause = Pause()
        self._pid = os.getpid()
        self.ending: dict[object, None] = {}
        """Marks of those who are giving something back: a shutdown waits for them too."""
        self.watches: set[object] = set()
        """Keeps alive what tells this keeper that nobody has the object of a lock any more."""

    # -- called by holders

    def keep(self, kept: Kept) -> None:
        """Begin to look after a lease."""
        self.forget_after_fork()
        kept.pid = self._pid  # the same object for all
        self._kept[kept] = True
        self._background.ensure(self.run, self.busy)
        self.rescheduled(kept)

    def let_go(self, kept: Kept) -> bool:
        """Stop looking after it; true for the one who may give it back, false where it was lost."""
        return self._kept.pop(kept, False)

    def is_lost(self, kept: Kept) -> bool:
        """Return whether the lease must not be trusted any more; turns by the clock alone."""
        if not kept.lost and kept.pid != os.getpid():
            kept.lost = "it belongs to the process that this one was forked from"
        if not kept.lost and kept in self._kept and self._over(kept):
            self.lose(kept, "its time ran out before a renewal was answered")
        return bool(kept.lost)

    def lose(self, kept: Kept, reason: str, *, doubted: bool = True) -> bool:
        """Declare it lost and tell everybody who asked to be told, once; false where it had ended before.

        Unless it is only given back by somebody else (not ``doubted``), a session that carries it is ended.
        """
        if not self._kept.pop(kept, False):
            return False
        kept.lost = reason
        logger.warning("lock %r was lost: %s", self._names.outer(kept.want.key), reason)
        if doubted and kept.doubt is not None:
            kept.doubt()
        callbacks, kept.callbacks = kept.callbacks, []
        for callback in callbacks:
            self.call(callback)
        return True

    def call(self, callback: Callable[[], None]) -> None:
        """Run a callback on loss; what it raises is logged, because nobody waits for it."""
        try:
            callback()
        except Exception:
            logger.exception("a callback on the loss of a lock failed")

    def lose_all(self, wants: Sequence[Want], reason: str) -> None:
        """Declare these very grants lost, where they are held."""
        attempts = {want.attempt for want in wants}
        for kept in self.kept():
            if kept.want.attempt in attempts:
                self.lose(kept, reason)

    def hurry(self) -> None:
        """Ask about everything now: something may have happened to it."""
        now = self._clock.now()
        for kept in self.kept():
            if kept.renewed:
                kept.due = min(kept.due, now)
        self._background.wake()

    async def prove(self, kept: Kept) -> bool:
        """Ask the server for one lock and renew it; raises where no answer came and it is not yet lost."""
        if self.is_lost(kept) or kept not in self._kept:
            return False
        answer = (await self._renew([kept])).get(kept.want.key)
        # a row that one's own guard pins cannot be renewed, but is nobody else's
        proven = answer is not None and (answer.verdict is not Verdict.SKIPPED or kept.pins > 0)
        if not kept.lost and not proven:
            key = self._names.outer(kept.want.key)
            raise BackendUnavailable(
                f"whether {key!r} is still held could not be asked: the database did not answer, or an open "
                "transaction has its row locked",
                details={"lock_key": key},
            )
        return not self.is_lost(kept)

    def remaining(self, kept: Kept) -> float:
        """Return the seconds left of the trust window; 0 where it is lost."""
        return 0.0 if self.is_lost(kept) else max(kept.deadline - self._clock.now(), 0.0)

    def release_later(self, want: Want, ttl: int) -> None:
        """Go on trying a release that was not settled, for as long as the lease can last."""
        self.forget_after_fork()
        self._add_pending(want, ttl)
        self._background.ensure(self.run, self.busy)

    def release_no_more(self, key: str, owner: str) -> None:
        """Forget an unsettled release of any attempt: this owner is about to ask for the key anew."""
        self._pending.forget(key, owner)

    def dropped(self, kept: Kept) -> None:
        """Give back a lease whose object nobody has any more."""
        if kept.pid != os.getpid() or not self.let_go(kept):
            return
        kept.ended = True
        key = self._names.outer(kept.want.key)
        self._add_pending(kept.release, kept.want.ttl)  # first: a warning may be an error
        warnings.warn(
            f"lock {key!r} was neither released nor left; it is given back now", ResourceWarning, stacklevel=2
        )

    def rescheduled(self, kept: Kept) -> None:
        """Note that a lease may now be due earlier than the keeper thinks."""
        if self._pause.ends_for(min(kept.due, kept.deadline)):
            self._background.wake()

    async def drained(self, timeout: float | None) -> None:
        """Wait until nothing is held nor to be released any more, or the time is over."""
        end = self._clock.now() + (NEVER if timeout is None else timeout)
        while (self.busy() or self.ending) and self._clock.now() < end:
            await self._clock.sleep(min(DRAIN_PAUSE, max(end - self._clock.now(), 0.0)))

    def kept(self) -> list[Kept]:
        """Return the leases that are looked after now."""
        self.forget_after_fork()
        return list(self._kept)

    def busy(self) -> bool:
        """Return whether there is anything to look after."""
        return bool(self._kept) or self._pending.some

    def forget_after_fork(self) -> None:
        """A child's leases are dead: only the parent may renew or give back what it holds."""
        if self._pid == os.getpid():
            return
        self._pid = os.getpid()
        for kept in self._kept:
            kept.lost = "it belongs to the process that this one was forked from"
        self._kept = {}
        self._pending.clear()
        self.ending = {}
        self._pause = Pause()

    # -- changes of the expiry

    def sending(self, kept: Kept) -> None:
        """Note that a change of the expiry is about to be sent."""
        # changes on one session come one after another, and each sets a later expiry than the one before
        kept.crossed = (kept.in_flight > 0 or kept.crossed) and not kept.heartbeat
        kept.in_flight += 1

    def undecided(self, kept: Kept) -> None:
        """Note that a change got no answer; what was believed before still holds."""
        kept.in_flight -= 1

    def renewed(self, kept: Kept, want: Want, sent: float, expires_at: datetime | None) -> None:
        """Note that the expiry was set to ``want.ttl`` after ``sent``."""
        kept.in_flight -= 1
        deadline = sent + want.ttl / 1_000_000 - margin(want.ttl)
        kept.failures = 0
        if kept.crossed:
            # the other change may be the one that is stored: trust the shorter, and settle it soon
            kept.deadline = min(kept.deadline, deadline)
            kept.expires_at = min(kept.expires_at, expires_at or kept.earliest(want, sent))
            kept.crossed = kept.in_flight > 0
            # nothing can be settled before the other has its answer
            soon = sent + kept.period if kept.crossed else self._clock.now()
            kept.due = soon if kept.renewed else NEVER
            return
        kept.deadline = deadline
        kept.shows(want, expires_at, now=self._clock.now(), sent=sent)
        kept.due = sent + kept.period if kept.renewed else NEVER

    # -- the activity

    async def run(self) -> None:
        """Renew what is due until there is nothing to look after."""
        idle_since = self._clock.now()
        while True:
            self._pause.over()
            due, wake = self._look(self._clock.now())
            if due:
                soonest = self._soonest()
                for start in range(0, len(due), RENEWAL_SLICE):
                    batch = sorted(due[start : start + RENEWAL_SLICE], key=_BY_KEY)
                    await self._renew(batch, soonest)
                continue
            wake = min(wake, await self._pending.try_due())
            if self.busy():
                idle_since = self._clock.now()
            elif self._clock.now() - idle_since >= self._background.linger:
                return
            else:
                wake = idle_since + self._background.linger
            wake = self._pause.begin(wake)
            await self._background.pause(max(wake - self._clock.now(), 0.0))

    def _look(self, now: float) -> tuple[list[Kept], float]:
        """Return what to renew now, each key once, and when to look again; expired leases are lost."""
        due: dict[str, Kept] = {}
        wake = NEVER
        # the first comparison spares 100,000 leases half of the time
        everything = [kept for kept in self.kept() if now < kept.deadline or not self.is_lost(kept)]
        everything = [kept for kept in everything if kept.heartbeat or not kept.pins]
        soonest = min((kept.due for kept in everything), default=NEVER)
        for kept in everything:
            # what is due soon goes along, so that many leases make few statements
            early = 0.0
            if soonest <= now and not kept.failures:
                early = kept.period if kept.heartbeat else kept.period / 3
            if kept.due <= now + early and kept.want.key not in due:
                due[kept.want.key] = kept
            else:
                wake = min(wake, kept.due, kept.deadline)
        return list(due.values()), wake

    async def renew_now(self, kept: Kept) -> None:
        """Renew one lease after a guarded transaction, also where its ttl ran out meanwhile."""
        if kept.renewed:
            await self._renew([kept], revive=True)

    def find(self, key: str, owner: str, token: int) -> list[Kept]:
        """Return the lease with that grant, if it is looked after."""
        return [
            kept
            for kept in self.kept()
            if kept.token == token and kept.want.key == key and kept.want.owner == owner
        ]

    def _soonest(self) -> float:
        return min((kept.deadline for kept in self.kept()), default=NEVER)

    async def _renew(
        self, batch: Sequence[Kept], soonest: float | None = None, *, revive: bool = False
    ) -> Answers:
        """Renew some leases; ``soonest`` is when the first of all leases runs out, or a little before."""
        wants = {id(kept): kept.want for kept in batch}
        sent = self._clock.now()
        for kept in batch:
            self.sending(kept)
        others = self._soonest() if soonest is None else soonest
        soonest = min(others, *(kept.deadline for kept in batch))
        # a statement that hangs must not keep a loss from being told
        alarm = self._clock.alarm(max(soonest - sent, 0.0), self._expire)
        answers: Answers = {}
        try:
            answers = await self._backend.renew(list(wants.values()), values=False, revive=revive)
        except (Fault, LockError) as problem:
            self._warn(batch, problem.message)
        finally:
            alarm.cancel()
            for kept in batch:
                self._answered(kept, wants[id(kept)], sent, answers.get(kept.want.key))
        return answers

    def _answered(self, kept: Kept, want: Want, sent: float, answer: Answer | None) -> None:
        if answer is not None and answer.verdict is Verdict.DONE:
            self.renewed(kept, want, sent, answer.expires_at)
            return
        self.undecided(kept)
        if answer is not None and answer.verdict is Verdict.REFUSED:
            kept.refused = True
            # a guarded transaction has proven it since; whether it goes on is asked when that ends
            if not kept.pins:
                self.lose(kept, "it expired, was broken, or somebody else holds the key")
            return
        if answer is not None and kept.pins:
            # the session has shown that it lives; the row follows when the guarded transaction ends
            kept.due = sent + kept.period
            return
        # a locked row, or no answer: again soon, until the deadline
        kept.failures += 1
        ttl = want.ttl / 1_000_000
        kept.due = self._clock.now() + min(0.01 * 2 ** min(kept.failures, 8), ttl / 10, 1.0)

    def _expire(self) -> None:
        now = self._clock.now()
        for kept in self.kept():
            if now >= kept.deadline:
                self.is_lost(kept)

    def _over(self, kept: Kept) -> bool:
        return not kept.pins and self._clock.now() >= kept.deadline

    def _warn(self, batch: Sequence[Kept], message: str) -> None:
        batch = [kept for kept in batch if not kept.lost]  # that was told already
        if any(kept.failures == 0 for kept in batch):
            first = self._names.outer(batch[0].want.key)
            others = f" and {len(batch) - 1} others" if len(batch) > 1 else ""
            logger.warning("renewal of lock %r%s failed, asking again: %s", first, others, message)

    def _add_pending(self, want: Want, ttl: int) -> None:
        self._pending.add(want, ttl)
        self._background.wake()
