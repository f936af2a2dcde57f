"""What every place that holds leases offers to the core."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sqllocks.dialects.base import Answer, StoredLock, Verdict, Want

__all__ = ["Answers", "Capabilities", "LeaseBackend", "Stored", "tell_freed"]

Answers = dict[str, Answer]
Stored = dict[str, StoredLock]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """How a backend differs, where that changes a decision."""

    single_writer: bool = False
    """One transaction that writes keeps everybody from the whole file, whatever its keys (SQLite)."""
    table: str = "core_locks"
    """What messages call the place."""


class LeaseBackend(Protocol):
    """Batches of lease operations; every key of a batch gets its own answer.

    ``Verdict.SKIPPED`` says that the key's row is locked by an open transaction at this moment.
    All methods raise ``Fault``.
    """

    capabilities: Capabilities
    freed: Callable[[str], None]
    """Called with each key that a release or break of this backend has freed."""

    def claim(self, wants: Sequence[Want]) -> Coroutine[Any, Any, Answers]:
        """Grant each key that is free; ``REFUSED`` carries the present holder's token and expiry."""
        ...

    def renew(
        self, wants: Sequence[Want], *, values: bool = True, revive: bool = False
    ) -> Coroutine[Any, Any, Answers]:
        """Set the expiry of each lease that its owner still holds.

        Without ``values``, answers need not carry token and expiry. With ``revive`` an expired lease
        that nobody has taken counts as held: for one that a guarded transaction kept past its ttl.
        """
        ...

    def release(self, wants: Sequence[Want]) -> Coroutine[Any, Any, Answers]:
        """Free each key that its owner still holds; the row keeps its token."""
        ...

    async def break_(self, wants: Sequence[Want]) -> Answers:
        """Free each held key, whoever holds it, and put the given owner token in the holder's place."""
        ...

    async def read(self, keys: Sequence[str]) -> Stored:
        """Return the rows that exist; writes nothing."""
        ...

    def takeable(self, row: StoredLock) -> bool:
        """Return whether a held row may be taken over all the same, so that looking does not suffice."""
        ...

    async def lockers(self, key: str) -> Sequence[str]:
        """Name the sessions that have a key's row locked, for people, as far as the server tells."""
        ...

    async def list(self, prefix: str) -> Sequence[StoredLock]:
        """Return the rows whose key starts with ``prefix``, sorted by key."""
        ...

    async def purge(self, prefix: str, idle: int) -> int:
        """Remove some rows that were free for ``idle`` microseconds; return how many."""
        ...

    async def create_table(self) -> None:
        """Create what is missing; harmless when it exists, and from several processes at once."""
        ...


def tell_freed(answers: Answers, freed: Callable[[str], None]) -> Answers:
    """Tell of each key that a release or break has freed; return the answers."""
    for key, answer in answers.items():
        if answer.verdict is Verdict.DONE:
            freed(key)
    return answers
