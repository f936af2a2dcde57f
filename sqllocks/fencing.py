"""Fencing that is enforced: the proof of holding a lock, inside the transaction that writes.

A lease can run out while its holder is paused, and the holder cannot know. Inside the transaction that
writes, the database knows: ``guard`` proves the lease there and keeps everybody from taking it over until
that transaction ends, ``fenced`` does the same as a condition of one statement, and ``accepts`` is the
check that any other resource can make by itself.
"""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any, Protocol, cast

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    MetaData,
    SQLColumnExpression,
    bindparam,
    false,
    or_,
    true,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from sqllocks.backends.base import Capabilities
from sqllocks.backends.memory import MemoryLeases
from sqllocks.core.guard import Claim, Ending, Granted, Pins, checked_at_most, checked_claim, objection
from sqllocks.core.naming import Names
from sqllocks.dialects.base import Answer, Want
from sqllocks.dialects.guards import GuardedRow, View, is_clustered
from sqllocks.dialects.proofs import Fence, no_fence_in_a_cluster
from sqllocks.errors import BackendUnavailable
from sqllocks.model import LockHandle, Seconds
from sqllocks.runtime.everyone import EVERYONE
from sqllocks.runtime.guarding import Proofs, begun
from sqllocks.runtime.transactions import is_watched, on_transaction_end
from sqllocks.schema import TABLE_NAME, core_locks

__all__ = [
    "AsyncGuarded",
    "Guarded",
    "Guards",
    "MemoryGuards",
    "accepts",
    "async_guard",
    "asyncio_source",
    "blocking_source",
    "guard",
]


class Guarded(Protocol):
    """A held lock of the blocking form that can guard a transaction by itself."""

    def guard(self, session_or_connection: Any, /, *, at_most: Seconds | None = None) -> None: ...


class AsyncGuarded(Protocol):
    """A held lock of the asyncio form that can guard a transaction by itself."""

    async def guard(self, session_or_connection: Any, /, *, at_most: Seconds | None = None) -> None: ...


class _Guards:
    """Which session or connection is meant, in either form; what is proven there is up to the subclass."""

    def guard(self, session_or_connection: Any, handle: Granted, *, at_most: Seconds | None = None) -> None:
        """Prove the lease inside the caller's transaction and pin it there; see ``LockProvider.guard``."""
        self.prove(blocking_source(session_or_connection), handle, at_most=at_most)

    async def async_guard(
        self, session_or_connection: Any, handle: Granted, *, at_most: Seconds | None = None
    ) -> None:
        """Do the same in the asyncio form."""
        source = asyncio_source(session_or_connection)
        await source.run_sync(partial(self.prove, handle=handle, at_most=at_most))

    def prove(self, source: Session | Connection, handle: Granted, *, at_most: Seconds | None = None) -> None:
        """Do the same where SQLAlchemy's blocking object is at hand: in ``run_sync`` of the asyncio form."""
        self._prove(source, self._claim(handle), checked_at_most(at_most))

    def _claim(self, handle: Granted) -> Claim:
        raise NotImplementedError

    def _prove(self, source: Session | Connection, claim: Claim, at_most: int | None) -> None:
        raise NotImplementedError


class Guards(_Guards):
    """Proofs of the leases in one lock table.

    ``handle`` is a ``LockHandle`` or anything with its fields, such as a ``Lease``. ``pins`` is told where
    a guard stops the lease's own renewals. ``dialect`` is that of an engine on the same server whose
    connections have asked about the cluster; without it ``fenced`` cannot tell one before the statement
    is compiled.
    """

    def __init__(
        self,
        *,
        table: str = TABLE_NAME,
        schema: str | None = None,
        namespace: str = "",
        pins: Pins | None = None,
        dialect: Dialect | None = None,
    ) -> None:
        stored = core_locks(MetaData(), name=table, schema=schema)
        capabilities = Capabilities(table=f"{schema}.{table}" if schema else table)
        self._names = Names(capabilities, namespace=namespace)
        self._proofs = Proofs(stored, self._names)
        self._fence = Fence(stored)
        self._pins = pins
        self._dialect = dialect

    def fenced(self, handle: Granted) -> ColumnElement[bool]:
        """Return the proof as a condition for a WHERE clause; see ``LockProvider.fenced``."""
        claim = self._claim(handle)
        if self._dialect is not None:
            _refuse_in_a_cluster(self._dialect)
        return self._fence(claim.key, claim.owner, claim.token)

    def claim_here(self, connection: Connection, want: Want) -> Answer | None:
        """Claim a key in the caller's own transaction; ``None`` where it is held."""
        return self._proofs.claim(connection, want)

    def expire_here(self, connection: Connection, want: Want) -> None:
        """Let a claim made there end with the caller's own transaction, which has it pinned."""
        self._proofs.expire(connection, want)

    def _claim(self, handle: Granted) -> Claim:
        return checked_claim(handle, self._names.inner(handle.lock_key))

    def _prove(self, source: Session | Connection, claim: Claim, at_most: int | None) -> None:
        pinned = partial(is_watched, name=(id(self._pins), claim))
        connection, how = self._proofs.prove(source, claim, at_most, pinned)
        if how.stops_own and self._pins is not None:
            _pin(self._pins, connection, claim)


class MemoryGuards(_Guards):
    """Proofs of the leases in memory, held for as long as a transaction of any database is open."""

    def __init__(self, leases: MemoryLeases, *, namespace: str = "") -> None:
        self._leases = leases
        self._names = Names(leases.capabilities, namespace=namespace)

    def fenced(self, handle: Granted) -> ColumnElement[bool]:
        """Return a constant: what is true at this moment, so that code under test runs unchanged."""
        claim = self._claim(handle)
        return true() if self._leases.proven(claim.key, claim.owner, claim.token) else false()

    def _claim(self, handle: Granted) -> Claim:
        return checked_claim(handle, self._names.inner(handle.lock_key))

    def _prove(self, source: Session | Connection, claim: Claim, at_most: int | None) -> None:
        connection = begun(source)
        row = self._leases.pin(claim.key)
        kept = False
        try:
            seen = row and GuardedRow(row.owner, row.attempt, row.token, row.held, row.token)
            found = objection(claim, View(seen or None))
            if found is not None:
                raise found
            kept = on_transaction_end(
                connection, lambda _: self._leases.unpin(claim.key), name=(id(self._leases), claim)
            )
        finally:
            if not kept:
                self._leases.unpin(claim.key)


_default = Guards(pins=EVERYONE)


def guard(
    session_or_connection: Session | scoped_session[Any] | Connection,
    held: LockHandle | Guarded,
    *,
    at_most: Seconds | None = None,
) -> None:
    """Prove inside the caller's transaction that a lock is held, and pin it until that transaction ends.

    ``held`` is a ``Lease``, ``SessionLock`` or ``Term``, or the ``LockHandle`` of a provider without
    namespace on the default table; other handles go to their provider's ``guard``, which also says what
    is raised and how long it may take.
    """
    if isinstance(held, LockHandle):
        _default.guard(session_or_connection, held, at_most=at_most)
        return
    if inspect.iscoroutinefunction(held.guard):
        raise TypeError(
            f"guard() blocks, and {type(held).__name__} is of the asyncio form: use async_guard()"
        )
    held.guard(session_or_connection, at_most=at_most)


async def async_guard(
    session_or_connection: AsyncSession | async_scoped_session[Any] | AsyncConnection,
    held: LockHandle | AsyncGuarded,
    *,
    at_most: Seconds | None = None,
) -> None:
    """Prove inside the caller's transaction that a lock is held, and pin it until that transaction ends.

    The asyncio form of ``guard``.
    """
    if isinstance(held, LockHandle):
        await _default.async_guard(session_or_connection, held, at_most=at_most)
        return
    if not inspect.iscoroutinefunction(held.guard):
        raise TypeError(
            f"async_guard() awaits, and {type(held).__name__} is of the blocking form: use guard()"
        )
    await held.guard(session_or_connection, at_most=at_most)


def accepts(column: SQLColumnExpression[Any], token: int) -> ColumnElement[bool]:
    """Return the condition by which a resource lets a token through: it has seen no greater one.

    ``column`` is where the resource keeps the highest token that it has seen, NULL before the first.
    Set it to ``token`` in the same statement. This also stops writers who cannot reach the lock table,
    but only after a later holder has written.
    """
    return or_(column.is_(None), column <= bindparam(None, token, type_=BigInteger))


def _refuse_in_a_cluster(dialect: Dialect) -> None:
    clustered = is_clustered(dialect)
    if clustered is None:
        raise BackendUnavailable(
            "fenced() has to know whether the server belongs to a cluster, and it has not been asked yet: "
            "call guard(), or any method of this provider that asks the database, before it"
        )
    if clustered:
        raise no_fence_in_a_cluster()


def _pin(pins: Pins, connection: Connection, claim: Claim) -> None:
    def ended(ending: Ending) -> None:
        pins.unpinned(claim.key, claim.owner, claim.token, ending)

    if on_transaction_end(connection, ended, name=(id(pins), claim)):
        pins.pinned(claim.key, claim.owner, claim.token)


_BLOCKING: tuple[type, ...] = (Session, scoped_session, Connection)
_ASYNCIO: tuple[type, ...] = (AsyncSession, async_scoped_session, AsyncConnection)


def blocking_source(given: Any) -> Session | Connection:
    """Return a session or connection of the blocking form, or raise ``TypeError``."""
    if isinstance(given, _BLOCKING):
        return cast("Session | Connection", given() if isinstance(given, scoped_session) else given)
    if isinstance(given, _ASYNCIO):
        raise _wrong(given, "await async_guard(), or the guard() of an Async provider")
    raise _wrong(given, "pass a Session or Connection in the transaction that writes")


def asyncio_source(given: Any) -> AsyncSession | AsyncConnection:
    """Return a session or connection of the asyncio form, or raise ``TypeError``."""
    if isinstance(given, _ASYNCIO):
        return cast(
            "AsyncSession | AsyncConnection", given() if isinstance(given, async_scoped_session) else given
        )
    if isinstance(given, _BLOCKING):
        raise _wrong(given, "use guard(), or the guard() of a blocking provider")
    raise _wrong(given, "pass an AsyncSession or AsyncConnection in the transaction that writes")


def _wrong(given: object, remedy: str) -> TypeError:
    return TypeError(f"a guard cannot work on a {type(given).__name__}: {remedy}")
