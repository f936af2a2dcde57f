"""An append-only audit log, chained by hashes: one chain for each tenant, and one for the platform.

    metadata = MetaData()
    table = audit_chain(metadata)                     # beside the application's tables
    audit = AuditChain(provider, table)

    with Session.begin() as session:
        ...                                           # the change, and in the same transaction
        audit.append(session, {"action": "paid", "invoice": 17}, tenant="acme")

A chain forks where two transactions read the same head. So an entry is appended under a lock that lasts until
the caller's transaction has ended (``audit:hash-chain:tenant:<id>``, ``audit:hash-chain:platform``), the head
is read after that lock was proven, and unique (chain, previous) is the last net. Entries are ordered by a
number that is given under the lock, never by a time. Other tenants' chains never wait.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import Table

from sqllocks.fencing import asyncio_source, blocking_source
from sqllocks.model import Seconds
from sqllocks.protocols import AsyncLockProvider, LockProvider
from sqllocks.recipes.chains import (
    GENESIS,
    AuditEntry,
    Break,
    Chains,
    Verification,
    audit_chain,
    chain_of,
    draft_of,
)

__all__ = ["GENESIS", "AsyncAuditChain", "AuditChain", "AuditEntry", "Break", "Verification", "audit_chain"]


class AuditChain:
    """The chains in one table, in the blocking form.

    ``ttl`` and ``wait`` (seconds) are those of the lock: ``wait`` is how long ``append`` waits for another
    transaction that appends to the same chain.
    """

    def __init__(
        self, provider: LockProvider, table: Table, *, ttl: Seconds = 30, wait: Seconds | None = 10
    ) -> None:
        self._provider = provider
        self._chains = Chains(table)
        self._ttl = ttl
        self._wait = wait

    def append(
        self, session: Any, record: Any, *, tenant: str | None = None, recorded_at: datetime | None = None
    ) -> AuditEntry:
        """Append a record (plain JSON) in the caller's transaction; return the entry.

        Without ``tenant`` it goes to the platform's chain. Nobody else appends to that chain before the
        transaction has ended. ``recorded_at`` (aware) is now
        where it is left out, by this host's clock.

        Raises ``LockTimeout`` where another transaction held the chain all the time; ``TransactionConflict``
        where this one cannot prove that it sees the newest entry: with ``retryable=False`` its snapshot is
        too old (append first, or use READ COMMITTED). Roll back then.
        """
        draft = draft_of(record, tenant, recorded_at)
        self._provider.hold_for_transaction(session, draft.lock_key, ttl=self._ttl, wait=self._wait)
        return self._chains.append(blocking_source(session), draft)

    def head(self, session: Any, *, tenant: str | None = None) -> AuditEntry | None:
        """Return the newest entry of a chain, without a lock."""
        return self._chains.head(blocking_source(session), chain_of(tenant))

    def verify(
        self, session: Any, *, tenant: str | None = None, anchor: AuditEntry | None = None
    ) -> Verification:
        """Read a chain from its beginning and report the first break.

        A chain whose end was cut off looks whole: keep an entry elsewhere and give it as ``anchor``, and the
        chain must still contain it.
        """
        return self._chains.verify(blocking_source(session), chain_of(tenant), anchor)


class AsyncAuditChain:
    """The chains in one table, in the asyncio form.

    ``ttl`` and ``wait`` (seconds) are those of the lock: ``wait`` is how long ``append`` waits for another
    transaction that appends to the same chain.
    """

    def __init__(
        self, provider: AsyncLockProvider, table: Table, *, ttl: Seconds = 30, wait: Seconds | None = 10
    ) -> None:
        self._provider = provider
        self._chains = Chains(table)
        self._ttl = ttl
        self._wait = wait

    async def append(
        self, session: Any, record: Any, *, tenant: str | None = None, recorded_at: datetime | None = None
    ) -> AuditEntry:
        """Append a record (plain JSON) in the caller's transaction; return the entry.

        Without ``tenant`` it goes to the platform's chain. Nobody else appends to that chain before the
        transaction has ended. ``recorded_at`` (aware) is now
        where it is left out, by this host's clock.

        Raises ``LockTimeout`` where another transaction held the chain all the time; ``TransactionConflict``
        where this one cannot prove that it sees the newest entry: with ``retryable=False`` its snapshot is
        too old (append first, or use READ COMMITTED). Roll back then.
        """
        draft = draft_of(record, tenant, recorded_at)
        await self._provider.hold_for_transaction(session, draft.lock_key, ttl=self._ttl, wait=self._wait)
        return await asyncio_source(session).run_sync(partial(self._chains.append, draft=draft))

    async def head(self, session: Any, *, tenant: str | None = None) -> AuditEntry | None:
        """Return the newest entry of a chain, without a lock."""
        chain = chain_of(tenant)
        return await asyncio_source(session).run_sync(partial(self._chains.head, chain=chain))

    async def verify(
        self, session: Any, *, tenant: str | None = None, anchor: AuditEntry | None = None
    ) -> Verification:
        """Read a chain from its beginning and report the first break.

        A chain whose end was cut off looks whole: keep an entry elsewhere and give it as ``anchor``, and the
        chain must still contain it.
        """
        work = partial(self._chains.verify, chain=chain_of(tenant), anchor=anchor)
        return await asyncio_source(session).run_sync(work)
