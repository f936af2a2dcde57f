"""What a lock provider of the asyncio form is, whatever stands behind it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

from sqlalchemy import ColumnElement

from sqllocks.diagnosis import Diagnosis
from sqllocks.lease import AsyncLease
from sqllocks.model import LockHandle, LockInfo, Seconds

__all__ = ["AsyncLockProvider"]


@runtime_checkable
class AsyncLockProvider(Protocol):
    """Leases by key: what every provider of the asyncio form offers."""

    async def acquire(self, lock_key: str, *, ttl: Seconds, owner_token: str | None = None) -> LockHandle:
        """Ask once for a lease; a busy key is an answer, not an error.

        ``ttl`` (0.1 s to 30 days) is the longest the lease lasts without ``extend``, by the database's
        clock. Without ``owner_token`` a fresh unguessable one is made. The lease is committed in its
        own transaction before this returns, whatever becomes of the caller's. Not re-entrant: the
        holder's own second acquire is refused.

        Returns a true handle where the lease was granted, with a ``fencing_token`` greater than that
        of every earlier grant of the key; otherwise a false one with the present holder's token and
        expiry. Waits for nobody: a row that an open transaction has locked for 0.2 s counts as held.

        Raises ``LockValidationError`` before any SQL; ``BackendUnavailable`` where the answer is
        unknown, ``BackendUnsupported`` or ``SchemaMissing`` where it can never be given.
        """
        ...

    async def require_acquire(
        self, lock_key: str, *, ttl: Seconds, owner_token: str | None = None, wait: Seconds | None = 0
    ) -> LockHandle:
        """Take a lease or raise, waiting up to ``wait`` seconds (0: not at all, ``None``: without limit).

        A waiter looks before it tries, so waiting writes nothing, and pauses 0.5 s at most. It goes
        on over ``BackendUnavailable`` until its time is over.

        Raises ``LockNotAcquired`` where ``wait`` is 0 and the key is held, ``LockTimeout`` (naming the
        holder and since when) where the wait ran out, or the last ``BackendUnavailable``; otherwise as
        ``acquire``.
        """
        ...

    async def release(self, lock_key: str, *, owner_token: str) -> bool:
        """Give the lease back; the key is free for others when this returns.

        Returns ``True`` where this owner held it, ``False`` where it did not or its lease was over.

        Raises ``BackendUnavailable`` with ``details["outcome"]`` ``"pending"`` where somebody's open
        transaction had the row locked for 2 s, ``"unknown"`` where the answer never came.
        """
        ...

    async def extend(self, lock_key: str, *, owner_token: str, ttl: Seconds) -> LockHandle | None:
        """Set the expiry of a lease that is still held to now + ``ttl``, which may be earlier than before.

        Returns the handle with the new expiry and the unchanged token, or ``None`` where this owner
        does not hold the key: an expired lease is never revived, also where nobody took it.

        Raises ``BackendUnavailable`` as ``release`` does.
        """
        ...

    async def acquire_many(
        self, lock_keys: Iterable[str], *, ttl: Seconds, owner_token: str | None = None
    ) -> list[LockHandle]:
        """Ask once for several leases: all of them or none, under one owner token.

        Keys are sorted and each taken once; the handles come in that order. Where one key is held
        elsewhere, every handle is false.

        Raises as ``acquire``; no keys at all is a ``LockValidationError``.
        """
        ...

    async def extend_many(
        self, lock_keys: Iterable[str], *, owner_token: str, ttl: Seconds
    ) -> list[LockHandle | None]:
        """Set the expiry of several leases in one statement; the answers come sorted by key, each key once.

        Each is as ``extend`` would give it. Raises ``BackendUnavailable`` as ``release`` does, after the
        others are done.
        """
        ...

    async def release_many(self, lock_keys: Iterable[str], *, owner_token: str) -> list[bool]:
        """Give several leases back in one statement; the answers come sorted by key, each key once.

        Raises ``BackendUnavailable`` as ``release`` does, after the others are done.
        """
        ...

    def hold(
        self,
        lock_key: str,
        *,
        ttl: Seconds,
        wait: Seconds | None = 0,
        renew: bool = True,
        at_least: Seconds = 0,
    ) -> AbstractAsyncContextManager[AsyncLease]:
        """Hold a lease for a ``with`` block, renewed in the background at a third of ``ttl``.

        Waits as ``require_acquire`` does and yields a lease that knows whether it is lost. After a loss
        the asyncio form cancels the body and raises ``LeaseLost`` from the block; in the blocking form
        the body sees it at ``check()``, ``guard()`` and at the end of the block. The body's own exception
        always wins. ``renew=False`` lets the lease end with its ttl. ``at_least`` (0 to ``ttl``) keeps
        the key taken for that long after the grant, however the block ends.

        Raises ``LockNotAcquired`` or ``LockTimeout`` before the body; after it ``LeaseLost``, or
        ``BackendUnavailable`` where giving back could not be settled (it goes on in the background).
        """
        ...

    def hold_many(
        self,
        lock_keys: Iterable[str],
        *,
        ttl: Seconds,
        wait: Seconds | None = 0,
        renew: bool = True,
        at_least: Seconds = 0,
    ) -> AbstractAsyncContextManager[list[AsyncLease]]:
        """Hold several leases for a ``with`` block, all or none; yields them sorted by key, each key once.

        Whatever the orders in which callers name their keys, they cannot deadlock: who waits for one
        key holds the others for a moment at most (1 s, a quarter of the ttl). Otherwise as ``hold``.
        """
        ...

    async def hold_for_transaction(
        self, session: Any, lock_key: str, *, ttl: Seconds, wait: Seconds | None = 0
    ) -> LockHandle:
        """Lease a key until the caller's transaction ends, committed or rolled back.

        The lease is taken in a short transaction of its own, so that everybody sees it at once, guarded
        in the caller's, and released after the outermost database transaction has ended. Calling it
        again for the same session and key proves it again and returns the same handle. On SQLite it is
        one write in the caller's transaction: others meet a locked file, which is the exclusion.

        Raises as ``require_acquire`` and ``guard`` do.
        """
        ...

    async def guard(
        self, session_or_connection: Any, handle: LockHandle, *, at_most: Seconds | None = None
    ) -> None:
        """Prove inside the caller's transaction that a lease is held, and pin it until that transaction ends.

        Write after it, in the same transaction, and a stale holder cannot have written: nobody takes
        the lease over before the transaction (or the savepoint around this call) has ended, past its ttl
        too. On PostgreSQL the lease is renewed meanwhile; elsewhere it is safe until then, and renewed
        at the end if nobody was quicker, else lost. ``at_most`` (seconds, above 0) bounds how long an
        idle or frozen caller can pin it: on PostgreSQL it sets the smaller of the present and this
        ``idle_in_transaction_session_timeout`` for this transaction; elsewhere the server's limits rule.

        Waits where another transaction has the row locked, as any statement of the caller's would.

        Raises ``StaleFencingToken`` where a newer grant exists or the lease is over (roll back then: on
        MySQL, MariaDB and SQLite the open transaction keeps the new holder from its row);
        ``TransactionConflict`` where the caller's transaction is a conflict's victim, or its snapshot
        is older than the grant (``retryable`` tells); ``LockValidationError`` in autocommit.
        """
        ...

    def fenced(self, handle: LockHandle) -> ColumnElement[bool]:
        """Return the same proof as a condition for the WHERE clause of an UPDATE, DELETE or INSERT … SELECT.

        It locks the lease's row while the statement runs, so that a takeover cannot slip in between.
        Zero rows do not tell a stale lease from an absent row. ``BackendUnsupported`` on Galera and group
        replication.
        """
        ...

    async def purge(self, *, idle: Seconds) -> int:
        """Remove rows that were free for at least ``idle`` (60 s or more); return how many.

        A row whose token does not lie that far behind the clock stays, so that the next grant of its
        key has a greater token all the same. Only keys of this provider's namespace.
        """
        ...

    async def locked(self, lock_key: str) -> bool:
        """Return whether anybody holds the key at this moment; writes nothing."""
        ...

    async def inspect(self, lock_key: str) -> LockInfo | None:
        """Return who holds or last held the key, or ``None`` for a key that was never used."""
        ...

    async def list_locks(self, *, prefix: str = "") -> list[LockInfo]:
        """Return every key that starts with ``prefix``, held or free, sorted by key."""
        ...

    async def break_lock(self, lock_key: str) -> bool:
        """Free a key whoever holds it: an operator's release.

        The former holder's ``extend`` and ``release`` do nothing from then on, and the next grant has
        a higher token, but its program may still be running: only a guarded write stops it.

        Returns ``True`` where the key was held. Raises ``BackendUnavailable`` as ``release`` does.
        """
        ...

    async def create_table(self) -> None:
        """Create the lock table; harmless where it exists, and from several processes at once."""
        ...

    async def diagnose(self) -> Diagnosis:
        """Return what the server can and cannot do for locks; changes nothing.

        What is wrong is a finding, not an error. About a dozen questions are asked: version and settings,
        whether it takes writes, the table and the rights on it, a pooler in between, the clocks.
        """
        ...

    async def aclose(self, timeout: Seconds | None = 10) -> None:
        """Renew until the bodies of all blocks have ended or ``timeout`` is over, then give back and close.

        ``None`` waits without limit. Only the library's own connections are closed: an engine that was
        passed in is left alone. Leases without a block stay held until their ttl.
        """
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
