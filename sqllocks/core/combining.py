"""Calls that arrive while a statement is in flight share the next one, and its commit.

Nobody waits for company: a call that finds the way free is sent at once, by itself. The rest is decided
here, without threads or tasks: which calls go together, and who waits for whom.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqllocks.backends.base import Answers
from sqllocks.dialects.base import Want

__all__ = ["Call", "Kind", "Queue"]

MOST_TOGETHER = 500
"""Most elements of one statement."""


class Kind(enum.IntEnum):
    """What a call asks for; lower ones go first, because they free what others want."""

    RELEASE = 0
    RENEW = 1
    REVIVE = 2
    CLAIM = 3


@dataclass(slots=True, eq=False)
class Call:
    """One call of a backend: its elements go into one statement and get their answers together."""

    kind: Kind
    wants: Sequence[Want]
    values: bool
    ended: Callable[[], Any]
    """Tells the caller; called once, when ``answers`` or ``error`` is set."""
    answers: Answers = field(default_factory=dict[str, Any])
    error: BaseException | None = None

    @property
    def together(self) -> tuple[Kind, bool]:
        """Calls with the same value fit into one statement."""
        return self.kind, self.values


class Queue:
    """The calls that wait, and the keys that are in flight.

    The order of the calls for one key is that of their arrival: a call for a key that is in flight, or that
    an earlier call waits for, goes into a later statement.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._waiting: OrderedDict[Call, None] = OrderedDict()
        self._flying: set[str] = set()
        self._flights: dict[object, Sequence[str]] = {}

    @property
    def idle(self) -> bool:
        """Whether nothing is in flight and nobody waits."""
        return not self._flights and not self._waiting

    @property
    def waiting(self) -> bool:
        """Whether a call waits."""
        return bool(self._waiting)

    def start(self, flight: object, wants: Iterable[Want]) -> None:
        """Note that a statement is sent; ``flight`` is whatever tells it from others."""
        keys = self._flights[flight] = [want.key for want in wants]
        self._flying.update(keys)

    def finish(self, flight: object) -> None:
        """Note that a statement has ended, or never began: an interrupt may have struck in between."""
        self._flying.difference_update(self._flights.pop(flight, ()))

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
        if len(self._flights) >= self._limit or not self._waiting:
            return ()
        taken = set(self._flying)
        free: dict[tuple[Kind, bool], list[Call]] = {}
        for call in self._waiting:
            keys = [want.key for want in call.wants]
            if taken.isdisjoint(keys):
                free.setdefault(call.together, []).append(call)
            taken.update(keys)
        if not free:
            return ()
        batch: list[Call] = []
        size = 0
        for call in free[min(free)]:
            if batch and size + len(call.wants) > MOST_TOGETHER:
                break
            batch.append(call)
            size += len(call.wants)
        for call in batch:
            del self._waiting[call]
        self.start(batch[0], (want for call in batch for want in call.wants))
        return batch
