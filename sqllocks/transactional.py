"""Leases held until the caller's transaction ends: `hold_for_transaction`, one code for both forms."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection

from sqllocks.backends.port import Clock
from sqllocks.core.claiming import Grant
from sqllocks.core.guard import Ending
from sqllocks.core.holding import Holding
from sqllocks.core.kept import Kept
from sqllocks.core.leases import Leases
from sqllocks.dialects.base import Want
from sqllocks.errors import LockError, LockNotAcquired, StaleFencingToken
from sqllocks.fencing import Guards, MemoryGuards, asyncio_source, blocking_source
from sqllocks.model import LockHandle, Seconds
from sqllocks.policy import checked_wait
from sqllocks.runtime.guarding import begun
from sqllocks.runtime.pins import Finish
from sqllocks.runtime.transactions import on_transaction_end

__all__ = ["TransactionHolds", "on_asyncio_connection", "on_blocking_connection"]

T = TypeVar("T")

logger = logging.getLogger("sqllocks")


class OnConnection(Protocol):
    """Runs a function on the SQLAlchemy connection of the caller's session, in its transaction."""

    def __call__(self, source: Any, work: Callable[[Connection], T]) -> Awaitable[T]: ...


@dataclass(slots=True, eq=False)
class _Held:
    handle: LockHandle
    kept: Kept
    active: bool = True
    postponed: bool = False
    """A proof that fails has locked the row all the same, until the transaction ends."""


class TransactionHolds:
    """The leases of one provider that end with a transaction of the application.

    A lease is taken in its own short transaction, so that everybody sees it at once, and guarded in
    the caller's; it is given back when the outermost database transaction has ended on the server.
    """

    def __init__(
        self,
        clock: Clock,
        leases: Leases,
        holding: Holding,
        guards: Guards | MemoryGuards,
        *,
        on_connection: OnConnection,
        finish: Finish,
    ) -> None:
        self._clock = clock
        self._here = leases.single_writer and isinstance(guards, Guards)
        self._leases = leases
        self._holding = holding
        self._guards = guards
        self._on_connection = on_connection
        self._finish = finish
        self._held: dict[tuple[int, str], _Held] = {}

    async def hold(self, source: Any, lock_key: str, *, ttl: Seconds, wait: Seconds | None) -> LockHandle:
        """Return the handle of the lease that this transaction holds from now on."""
        want, longest = self._leases.names.want(lock_key, ttl, None), checked_wait(wait)
        present = await self._on_connection(
            source, lambda connection: self._held.get(_name(connection, want))
        )
        if present is not None and await self._on_connection(source, partial(self._again, held=present)):
            return present.handle
        if self._here:
            return await self._hold_here(source, want, longest)
        grant = await self._leases.grant(want, longest)
        held = _Held(grant.handle, self._holding.begin(grant, renew=True, at_least=0))
        try:
            await self._on_connection(source, partial(self._enter, want=want, held=held))
        except BaseException:
            if not held.postponed:
                held.active = False
                await self._give_back(held)
            raise
        return grant.handle

    async def _hold_here(self, source: Any, want: Want, longest: float | None) -> LockHandle:
        """Take the lease by a write in the caller's transaction (SQLite: that is what locks the file).

        It looks first: a claim that is refused would keep the holder from the file as well.
        """
        await self._leases.free(want, longest)
        return await self._on_connection(source, partial(self._claim_here, want=want))

    def _claim_here(self, connection: Connection, want: Want) -> LockHandle:
        sent = self._clock.now()
        assert isinstance(self._guards, Guards)
        answer = self._guards.claim_here(connection, want)
        name = self._leases.names.outer(want.key)
        if answer is None or answer.expires_at is None:
            raise LockNotAcquired(
                f"lock {name!r} was taken by somebody else at this moment; roll this transaction back, "
                "because it keeps the holder from the database file",
                details={"lock_key": name},
            )
        handle = LockHandle(True, name, want.owner, answer.expires_at, answer.token)
        kept = self._holding.begin(Grant(want, handle, sent), renew=False, at_least=0)
        self._enter(connection, want, _Held(handle, kept))
        # the file is what excludes; a row that outlived the commit would turn away who waited for the file
        self._guards.expire_here(connection, want)
        return handle

    def _again(self, connection: Connection, held: _Held) -> bool:
        """Prove it again; false where a rolled back savepoint has undone the claim itself."""
        try:
            self._guards.prove(connection, handle=held.handle)
        except StaleFencingToken:
            if not self._here:
                raise
            return False
        return True

    def _enter(self, connection: Connection, want: Want, held: _Held) -> None:
        name = _name(connection, want)
        # registered before the guard's own callback, so that the release comes before a last renewal
        on_transaction_end(connection, partial(self._ended, name, held), name=(id(self), id(held)))
        held.postponed = isinstance(self._guards, Guards) and connection.dialect.name != "postgresql"
        self._guards.prove(connection, handle=held.handle)
        self._held[name] = held

    def _ended(self, name: tuple[int, str], held: _Held, ending: Ending) -> None:
        self._held.pop(name, None)
        if held.active:
            held.active = False
            self._finish(self._give_back(held))

    async def _give_back(self, held: _Held) -> None:
        try:
            await self._holding.release(held.kept)
        except LockError as error:
            logger.warning("lock %r is given back later: %s", held.handle.lock_key, error)


def _name(connection: Connection, want: Want) -> tuple[int, str]:
    return id(connection.connection.dbapi_connection), want.key


async def on_blocking_connection(source: Any, work: Callable[[Connection], T]) -> T:
    """Run a function on the connection of a ``Session`` or ``Connection``, in its transaction."""
    return work(begun(blocking_source(source)))


async def on_asyncio_connection(source: Any, work: Callable[[Connection], T]) -> T:
    """Run a function on the connection of an ``AsyncSession`` or ``AsyncConnection``, in its transaction."""
    return await asyncio_source(source).run_sync(lambda inner: work(begun(inner)))
