"""Waiting for a key: stand in line, and at its head look, then try, with pauses in between."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from sqllocks.backends.base import LeaseBackend
from sqllocks.backends.port import Clock, Event, Wakeups
from sqllocks.core.claiming import Claims, Grant
from sqllocks.core.insist import Patience, persist
from sqllocks.core.lines import Line, Lines
from sqllocks.core.naming import Names
from sqllocks.dialects.base import Fault, StoredLock, Want
from sqllocks.errors import BackendUnavailable, LockError, LockTimeout
from sqllocks.policy import BUSY_PATIENCE, fresh_token

__all__ = ["Pace", "Stopped", "Waiting"]

OVERTIME = 0.5
"""Seconds that one behind the head stays past its deadline while nothing is known of the key yet."""
STALE = 5.0
"""Seconds after which the last answer of the database says nothing any more."""
LOOK = 0.25
"""Seconds between two looks of one who tries less often and is not told of a release."""
STOP_LOOK = 0.1
"""Seconds between two looks whether a wait of the blocking form was stopped."""
_LONGEST_SLEEP = 3600.0


class Waiting:
    """Waiters hold no connection between two looks, and only the head of a line looks."""

    def __init__(
        self,
        clock: Clock,
        backend: LeaseBackend,
        claims: Claims,
        names: Names,
        lines: Lines,
        *,
        wakeups: Wakeups | None,
    ) -> None:
        self._clock = clock
        self._backend = backend
        self._claims = claims
        self._names = names
        self._lines = lines
        self._wakeups = wakeups

    async def wait_for(
        self, want: Want, longest: float | None, pace: Pace | None = None, *, since: float | None = None
    ) -> Grant:
        """Return the grant; raises ``LockTimeout``, or the last ``BackendUnavailable``, when time is over.

        It is counted from ``since`` where the wait has begun before, with another key.
        """
        now = self._clock.now()
        started = now if since is None else since
        deadline = started if longest is None else started + longest
        wait = _Wait(self._clock.event(), longest, deadline, pace or Pace())
        line = self._lines.join(want.key, wait.event, now)
        try:
            await self._until_head(line, wait)
            return await self._lead(line, want, wait)
        finally:
            self._lines.leave(line, wait.event)

    def awaited(self, key: str) -> bool:
        """Return whether somebody in this process stands in line for a key."""
        return self._lines.standing(key)

    async def _until_head(self, line: Line, wait: _Wait) -> None:
        while not line.led_by(wait.event):
            left = wait.left(self._clock.now())
            if left <= 0 and (line.answered_at is not None or left <= -OVERTIME):
                raise self._over(line, wait, "")
            await wait.sleep(min(left, _LONGEST_SLEEP) if left > 0 else OVERTIME / 10)

    async def _lead(self, line: Line, want: Want, wait: _Wait) -> Grant:
        pause = line.rest(self._clock.now())
        while True:
            if pause > 0 and wait.left(self._clock.now()) > 0:
                await wait.sleep(min(pause, wait.left(self._clock.now())))
            elif pause > 0:
                raise self._over(line, wait, await self._lockers(line))
            grant = await self._ask(line, want, wait)
            if grant is not None:
                return grant
            if line.watch is None and self._wakeups is not None:
                line.watch = self._wakeups.watch(line.key, lambda: self._lines.alarm(line))
            told = line.watch is not None and line.watch.active
            pause = wait.pace.of(line.nap(self._clock.now()), told=told)

    async def _ask(self, line: Line, want: Want, wait: _Wait) -> Grant | None:
        """Look whether the key is free, and if it is, or a release was told, try for it."""
        alarms, alarmed = line.alarms, line.alarmed
        looked, line.told = line.told, False
        pace = wait.pace
        try:
            if line.held and not alarmed and not looked and not self._takeable(line, wait):
                await self._look(line)
            if line.held and not alarmed and not self._takeable(line, wait):
                return None
            wait.tries_at = self._clock.now() + pace.of(0.0, told=True)
            if not looked:
                line.asking()
            # a row that stays locked is asked for again after a pause, not at once
            # with another attempt each time: the undo of an earlier one may still be on its way
            want = want._replace(attempt=fresh_token())
            grant = await self._claims.claim(want, insistent=line.row is None)
            if pace.answered is not None:
                pace.answered()
            line.heard = alarms
            if grant.acquired:
                line.granted(want, grant.handle, self._clock.now())
                return grant
            if line.explains(grant.handle):
                line.pinned = not line.held
            else:
                await self._look(line)
        except BackendUnavailable as error:  # it may pass before the wait is over
            line.failed(error, self._clock.now())
            if pace.failed is not None:
                pace.failed(error)
        return None

    def _takeable(self, line: Line, wait: _Wait) -> bool:
        """Return whether to try for a key that its row shows as held: the holder's session may be gone."""
        if line.row is None or self._clock.now() < wait.tries_at:
            return False
        return self._backend.takeable(line.row)

    async def _look(self, line: Line) -> None:
        """Read the row, and those of the lines that were to look soon: a read writes nothing."""
        sent = self._clock.now()
        lines = self._lines.due_with(line, sent)
        for each in lines:
            each.asking()
            # its head need not ask when its pause ends; should this look fail, it does after the next one
            each.told = each is not line
        keys = [each.key for each in lines]
        try:
            rows = await persist(Patience(self._clock, BUSY_PATIENCE), lambda: self._backend.read(keys))
        except Fault as fault:
            raise self._names.error(fault, "wait for", line.key) from fault.__cause__
        now = self._clock.now()
        for each in lines:
            if each.saw(rows.get(each.key), now, sent=sent) and each is not line and not each.held:
                self._lines.alarm(each)

    async def _lockers(self, line: Line) -> str:
        """Say who keeps the row of an expired lease locked, where the server tells."""
        if not line.pinned or line.error is not None:
            return ""
        try:
            sessions = await self._backend.lockers(line.key)
        except (Fault, LockError):
            sessions = ()
        return " and ".join(sessions)

    def _over(self, line: Line, wait: _Wait, lockers: str) -> LockError:
        """Return the error for a wait that ran out."""
        key = self._names.outer(line.key)
        if line.error is not None:
            # a copy for each waiter, or their tracebacks would grow together
            error = copy.copy(line.error)
            error.__cause__ = line.error.__cause__
            return error
        if line.answered_at is None or self._clock.now() - line.answered_at > STALE:
            return BackendUnavailable(
                f"could not wait for {key!r}: the database has not answered at the end of a wait of "
                f"{wait.longest:g} s. Whether the lock is held is unknown.",
                details={"lock_key": key},
            )
        return _timed_out(key, wait.longest, _holder(line, lockers))

    async def late(self, refused: Grant, longest: float) -> LockTimeout:
        """Return the error for one whose time was over when a last try was refused."""
        want, handle = refused.want, refused.handle
        holder = f"somebody else (expires {handle.expires_at.isoformat()})"
        with suppress(Fault):  # only for people
            row = (await self._backend.read([want.key])).get(want.key)
            if row is not None and row.token == handle.fencing_token:
                holder = _named(row) + ")"
        return _timed_out(handle.lock_key, longest, holder)


def _timed_out(key: str, longest: float, holder: str) -> LockTimeout:
    return LockTimeout(
        f"lock {key!r} is still held after a wait of {longest:g} s: by {holder}", details={"lock_key": key}
    )


def _named(row: StoredLock) -> str:
    return f"{row.holder!r} since {row.acquired_at.isoformat()} (expires {row.expires_at.isoformat()}"


def _holder(line: Line, lockers: str) -> str:
    row = line.row
    if row is None:
        return "somebody else"
    text = _named(row)
    if line.pinned:
        text += f"; then kept by {lockers or 'an open transaction'}, which has its row locked"
    return text + ")"


@dataclass(frozen=True, slots=True)
class Pace:
    """How often a waiter asks, where that is its own choice, and what ends its wait from outside."""

    every: float | None = None
    """Seconds between two tries unless a release is told."""
    stopped: Callable[[], bool] | None = None
    """Tells, in the blocking form, that nobody wants the lock any more."""
    failed: Callable[[LockError], None] | None = None
    """Called with each error that may pass."""
    answered: Callable[[], None] | None = None
    """Called when a try was answered."""

    def of(self, pause: float, *, told: bool) -> float:
        """Return the pause to make in the place of one that the line proposes.

        Where a release is not ``told``, the row is looked at more often than the key is tried for.
        """
        if self.every is None:
            return pause
        longest = self.every if told else min(self.every, LOOK)
        return longest * random.uniform(0.75, 1.0)  # noqa: S311 - nothing secret


class Stopped(Exception):
    """A wait that was ended from outside."""


class _Wait:
    """One waiter: what it sleeps on, and until when."""

    def __init__(self, event: Event, longest: float | None, deadline: float, pace: Pace) -> None:
        self.event = event
        self.pace = pace
        self.tries_at = 0.0
        """When a key that its row shows as held is tried for next."""
        self.longest = longest if longest is not None else _NEVER
        self._deadline = deadline if longest is not None else _NEVER

    async def sleep(self, seconds: float) -> None:
        """Sleep until it is woken or the time is over; raises ``Stopped``."""
        stopped = self.pace.stopped
        while stopped is not None and not stopped():
            step = min(seconds, STOP_LOOK)
            seconds -= step
            if await self.event.wait(step) or seconds <= 0:
                return
        if stopped is not None:
            raise Stopped
        await self.event.wait(seconds)

    def left(self, now: float) -> float:
        """Return the seconds left."""
        return self._deadline - now


_NEVER = float("inf")
