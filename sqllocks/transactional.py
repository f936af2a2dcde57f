"""Leases held until the caller's transaction ends: `hold_for_transaction`, one code for both forms."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection

from sqllocks.core.guard import Ending
from sqllocks.core.holding import Holding
from sqllocks.core.kept import Kept
from sqllocks.core.leases import Leases
from sqllocks.dialects.base import Want
from sqllocks.errors import LockError
from sqllocks.fencing import Guards
from sqllocks.model import LockHandle, Seconds
from sqllocks.policy import checked_wait
from sqllocks.runtime.transactions import on_transaction_end

__all__ = ["TransactionHolds"]

T = TypeVar("T")

logger = logging.getLogger("sqllocks")

Finish = Callable[[Coroutine[Any, Any, None]], object]


class OnConnection(Protocol):
    """Runs a function on the SQLAlchemy connection of the caller's session, in its transaction."""

    def __call__(self, source: Any, work: Callable[[Connection], T]) -> Awaitable[T]: ...


@dataclass(slots=True, eq=False)
class _Held:
    handle: LockHandle
    kept: Kept
    active: bool = True


class TransactionHolds:
    """The leases of one provider that end with a transaction of the application.

    A lease is taken in its own short transaction, so that everybody sees it at once, and guarded in
    the caller's; it is given back when the outermost database transaction has ended on the server.
    """

    def __init__(
        self, leases: Leases, holding: Holding, guards: Guards, on_connection: OnConnection, finish: Finish
    ) -> None:
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
        if present is not None:
            await self._on_connection(source, partial(self._guards.prove, handle=present.handle))
            return present.handle
        grant = await self._leases.grant(want, longest)
        held = _Held(grant.handle, self._holding.begin(grant, renew=True, at_least=0))
        try:
            await self._on_connection(source, partial(self._enter, want=want, held=held))
        except BaseException:
            held.active = False
            await self._give_back(held)
            raise
        return grant.handle

    def _enter(self, connection: Connection, want: Want, held: _Held) -> None:
        name = _name(connection, want)
        # registered before the guard's own callback, so that the release comes before a last renewal
        on_transaction_end(connection, partial(self._ended, name, held), name=(id(self), id(held)))
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
