"""Calls that arrive while a statement is in flight share the next one, and its commit.

Nobody waits for company: a call that finds the way free is sent at once, by itself. The rest is decided
here, without threads or tasks: which calls go together, and who waits for whom.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import Any

from sqllocks.backends.base import Answers
from sqllocks.dialects.base import Want

__all__ = ["Call", "Kind", "Queue"]

MOST_TOGETHER = 500
"""Most elements of one statement."""
MOST_PASSES = 3
"""Statements of more urgent kinds that go before a call that could have gone: nobody starves."""


class Kind(enum.IntEnum):
    """What a call asks for; lower ones go first, because they free what others want."""

    RELEASE = 0
    RENEW = 1
    REVIVE = 2
    CLAIM = 3


class Call:
    """One call of a backend: its elements go into one statement and get their answers together."""

    __slots__ = ("answers", "caller", "error", "kind", "together", "values", "wants")

    def __init__(self, kind: Kind, wants: Sequence[Want], values: bool, caller: Any) -> None:
        self.kind = kind
        self.wants = wants
        self.values = values
        self.caller = caller
        """Whom to tell when ``answers`` or ``error`` is set; each form has its own way to tell."""
        self.answers: Answers | None = None
        """The answers of the whole statement, those to this call's elements among them."""
        self.error: BaseException | None = None
        self.together = kind * 2 + values
        """Calls with the same value fit into one statement; lower ones are more urgent."""


class Queue:
    """The calls that wait, and the keys that are in flight.

    The order of the calls for one key is that of their arrival: a call for a key that is in flight, or that
    an earlier call waits for, goes into a later statement.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._waiting: dict[Call, None] = {}
        self._flights: dict[object, Sequence[str]] = {}
        self._overdue: object | None = None
        self._passed = 0

    @property
    def idle(self) -> bool:
        """Whether nothing is in flight and nobody waits."""
        return not self._flights and not self._waiting

    @property
    def waiting(self) -> bool:
        """Whether a call waits."""
        return bool(self._waiting)

    @property
    def flights(self) -> Sequence[object]:
        """What is in flight now."""
        return tuple(self._flights)

    def start(self, flight: object, wants: Iterable[Want]) -> None:
        """Note that a statement is sent; ``flight`` is whatever tells it from others."""
        # one step, as in `finish`: an interrupt leaves no half of it
        self._flights[flight] = [want.key for want in wants]

    def finish(self, flight: object) -> None:
        """Note that a statement has ended, or never began: an interrupt may have struck in between."""
        self._flights.pop(flight, None)

    def excuse(self, flights: Iterable[object]) -> object | None:
        """Let another statement go beside one of these that still has no answer; return that one.

        Its keys stay taken. Only one at a time: a server that is slow for all gets no more of them.
        """
        if self._overdue in self._flights:
            return None
        self._overdue = next((flight for flight in flights if flight in self._flights), None)
        return self._overdue

    def add(self, call: Call) -> None:
        """Put a call at the end."""
        self._waiting[call] = None

    def drop(self, call: Call) -> bool:
        """Take a call back; ``False`` where it is in flight or has ended."""
        if call not in self._waiting:
            return False
        del self._waiting[call]
        return True

    def next(self) -> Sequence[Call]:
        """Take the calls of the next statement: a flight named by the first. Empty: nothing can go now."""
        if not self._waiting or len(self._flights) - (self._overdue in self._flights) >= self._limit:
            return ()
        free = self._free()
        if not free:
            return ()
        batch: list[Call] = []
        size = 0
        for call in free[self._turn(free)]:
            if batch and size + len(call.wants) > MOST_TOGETHER:
                break
            batch.append(call)
            size += len(call.wants)
        for call in batch:
            del self._waiting[call]
        self.start(batch[0], (want for call in batch for want in call.wants))
        return batch

    def _free(self) -> dict[int, list[Call]]:
        """Return the calls that could go, by what fits together, each group in order of arrival."""
        taken = {key for keys in self._flights.values() for key in keys}
        free: dict[int, list[Call]] = {}
        for call in self._waiting:
            if len(call.wants) == 1:  # nearly all, so without a list of keys
                key = call.wants[0].key
                if key in taken:
                    continue
                taken.add(key)
            else:
                keys = [want.key for want in call.wants]
                blocked = not taken.isdisjoint(keys)
                taken.update(keys)
                if blocked:
                    continue
            if call.together in free:
                free[call.together].append(call)
            else:
                free[call.together] = [call]
        return free

    def _turn(self, free: Iterable[int]) -> int:
        """Return which group goes: the most urgent, or that of the oldest call once it was passed often."""
        oldest, urgent = next(iter(free)), min(free)
        if urgent == oldest or self._passed == MOST_PASSES:
            self._passed = 0
            return oldest
        self._passed += 1
        return urgent
