"""The lines of those who wait in this process: one for each key, first come first served."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Hashable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any

from sqllocks.backends.port import Event, Watch
from sqllocks.dialects.base import StoredLock, Want
from sqllocks.errors import LockError
from sqllocks.model import LockHandle
from sqllocks.policy import WAIT_CEILING, WAIT_FLOOR

__all__ = ["Line", "Lines"]

QUICK_CEILING = 0.08
"""Longest pause between two looks while a wait is young, in seconds."""
PINNED_CEILING = 0.1
"""The same between two tries for a row that stays locked: a try is more than one statement on MySQL."""
QUICK_FOR = 30.0
"""Seconds for which a wait is young: with the same holder, and with this line standing."""
GROWTH = 1.5
TOGETHER = 0.05
"""Seconds by which a look may come early to share a statement with another line's."""
MOST_TOGETHER = 500
"""Most keys that one look asks for."""
_NEVER = float("inf")


class Line:
    """Those who wait for one key, and what the head has learnt of it; a new head goes on from there.

    Only the head asks the database. ``alarms`` counts the releases that were told; while it is ahead of
    ``heard``, the head is to try without looking first.
    """

    def __init__(self, key: str, home: Hashable, now: float) -> None:
        self.key = key
        self.home = home
        self.waiters: OrderedDict[Event, None] = OrderedDict()
        self.alarms = 0
        self.heard = 0
        self.row: StoredLock | None = None
        self.error: LockError | None = None
        self.answered_at: float | None = None
        """When the last answer came, be it a row or an error."""
        self.due = now
        """When the head asks next; never while it is asking."""
        self.told = False
        """Another line's look has asked, or is asking, for this one during the present pause."""
        self.watch: Watch | None = None
        self.pinned = False
        """The lease is over, but an open transaction keeps its row locked."""
        self._safe = False
        self._sent = now
        self._pause = WAIT_FLOOR
        self._young_until = now + QUICK_FOR

    @property
    def held(self) -> bool:
        """Whether the key was held when it was last looked at."""
        return self.row is not None and self.row.held

    @property
    def alarmed(self) -> bool:
        """Whether a release was told that no try has followed yet."""
        return self.alarms != self.heard

    def led_by(self, event: Event) -> bool:
        """Return whether this waiter is the head."""
        return next(iter(self.waiters), None) is event

    def asking(self) -> None:
        """Note that a question is about to be sent: what is told from now on cannot be missed."""
        self.due = _NEVER
        self._safe = self.watch is not None and self.watch.active

    def saw(self, row: StoredLock | None, now: float, *, sent: float) -> bool:
        """Take in the row of a look; ``False`` where one sent later had its answer already."""
        if sent < self._sent:
            return False
        if row is not None and self.row is not None and row.token != self.row.token:
            self._young_until = now + QUICK_FOR
        self.row, self.error, self.answered_at, self.pinned = row, None, now, False
        self._sent = sent
        return True

    def explains(self, handle: LockHandle) -> bool:
        """Return whether the last look already showed what a refused try met."""
        row = self.row
        return row is not None and row.token == handle.fencing_token and row.expires_at == handle.expires_at

    def failed(self, error: LockError, now: float) -> None:
        """Take in an error that may pass."""
        self.error, self.answered_at = error, now

    def granted(self, want: Want, handle: LockHandle, now: float) -> None:
        """Note that the head has got the key: the next one need not ask who holds it."""
        since = handle.expires_at - timedelta(microseconds=want.ttl)
        self.row = StoredLock(
            want.key,
            want.owner,
            want.attempt,
            "lease",
            want.holder,
            "",
            handle.fencing_token,
            since,
            handle.expires_at,
            held=True,
            seen_at=since,
        )
        self.error, self.answered_at, self.pinned, self._sent = None, now, False, now
        self.heard = self.alarms
        # its release will be seen in this process
        self._pause, self._young_until = QUICK_CEILING, now + QUICK_FOR
        self.due = now + self.nap(now)

    def rest(self, now: float) -> float:
        """Return what is left of the pause that an earlier head began, in seconds."""
        return 0.0 if self.alarmed or self.due == _NEVER else max(self.due - now, 0.0)

    def nap(self, now: float) -> float:
        """Return the pause before the next look, in seconds, and note when it ends.

        Not past the expiry of the lease; long where a release is certain to be told meanwhile.
        """
        told = self._safe and self.held and self.watch is not None and self.watch.active
        quick = now < self._young_until and self.error is None
        quickest = PINNED_CEILING if self.pinned else QUICK_CEILING
        ceiling = quickest if quick else WAIT_CEILING
        pause = WAIT_CEILING if told else min(self._pause, ceiling)
        if not told:
            self._pause = min(pause * GROWTH, ceiling)
        pause *= random.uniform(0.75, 1.0)  # noqa: S311 - nothing secret
        if self.row is not None and self.row.held:
            lasts = (self.row.expires_at - self.row.seen_at).total_seconds()
            since = now - self.answered_at if self.answered_at is not None else 0.0
            pause = min(pause, max(lasts - since, WAIT_FLOOR))
        self.due = now + pause
        return pause


class Lines:
    """All lines of the providers that share a lock table in this process.

    A line never spans two event loops, nor a loop and threads: one that stands still would hold up
    the others. ``mutex`` protects short work on the lines where several threads share them.
    """

    def __init__(self, mutex: AbstractContextManager[Any] | None = None) -> None:
        self._mutex = mutex or nullcontext()
        self._lines: dict[str, dict[Hashable, Line]] = {}

    def forget(self, mutex: AbstractContextManager[Any]) -> object:
        """Begin with no line at all, and return the former ones: they are a forked child's parent's."""
        former, self._lines = self._lines, {}
        self._mutex = mutex
        return former

    def join(self, key: str, event: Event, now: float) -> Line:
        """Stand at the end of a key's line; ``event`` is set when its head changes or is to hurry."""
        with self._mutex:
            homes = self._lines.setdefault(key, {})
            line = homes.get(event.home)
            if line is None:
                line = homes[event.home] = Line(key, event.home, now)
            line.waiters[event] = None
            return line

    def leave(self, line: Line, event: Event) -> None:
        """Go away, granted or not; the next one becomes the head."""
        with self._mutex:
            was_head = line.led_by(event)
            line.waiters.pop(event, None)
            head = next(iter(line.waiters), None)
            if head is None:
                self._remove(line)
        if head is None:
            if line.watch is not None:
                line.watch.close()
        elif was_head:
            head.set()

    def standing(self, key: str) -> bool:
        """Return whether somebody waits for a key."""
        return key in self._lines

    def freed(self, key: str) -> None:
        """Wake the heads of a key whose release this process has seen."""
        if key not in self._lines:  # who joins from here on asks for itself
            return
        with self._mutex:
            lines = list(self._lines.get(key, {}).values())
        for line in lines:
            self.alarm(line)

    def alarm(self, line: Line) -> None:
        """Have the head of a line try at once; a later head does where this one goes away meanwhile."""
        with self._mutex:
            line.alarms += 1
            head = next(iter(line.waiters), None)
        if head is not None:
            head.set()

    def due_with(self, line: Line, now: float) -> list[Line]:
        """Return the lines of the same home that are to look about now, this one first."""
        with self._mutex:
            others = [
                homes[line.home]
                for key, homes in self._lines.items()
                if key != line.key and line.home in homes and homes[line.home].due <= now + TOGETHER
            ]
        return [line, *others[: MOST_TOGETHER - 1]]

    def _remove(self, line: Line) -> None:
        homes = self._lines.get(line.key, {})
        if homes.get(line.home) is line:
            del homes[line.home]
            if not homes:
                self._lines.pop(line.key, None)
