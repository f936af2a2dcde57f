"""What every place that holds leases offers to the core."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sqllocks.dialects.base import Answer, StoredLock, Want

__all__ = ["Answers", "Capabilities", "LeaseBackend", "Stored"]

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

    async def claim(self, wants: Sequence[Want]) -> Answers:
        """Grant each key that is free; ``REFUSED`` carries the present holder's token and expiry."""
        ...

    async def renew(self, wants: Sequence[Want]) -> Answers:
        """Set the expiry of each lease that its owner still holds."""
        ...

    async def release(self, wants: Sequence[Want]) -> Answers:
        """Free each key that its owner still holds; the row keeps its token."""
        ...

    async def break_(self, wants: Sequence[Want]) -> Answers:
        """Free each held key, whoever holds it, and put the given owner token in the holder's place."""
        ...

    async def read(self, keys: Sequence[str]) -> Stored:
        """Return the rows that exist; writes nothing."""
        ...

    async def list(self, prefix: str) -> Sequence[StoredLock]:
        """Return the rows whose key starts with ``prefix``, sorted by key."""
        ...

    async def create_table(self) -> None:
        """Create what is missing; harmless when it exists, and from several processes at once."""
        ...
