"""What a recipe needs of either form, so that each recipe is written once.

As in the core, a recipe is a coroutine function over a small port. The blocking port never suspends, and
``drive`` runs it to its end; the asyncio port really awaits.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, TypeVar

from sqlalchemy.ext.asyncio import async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker

from sqllocks.model import Seconds
from sqllocks.protocols import AsyncLockProvider, LockProvider

__all__ = ["AsyncioWork", "BlockingWork", "Held", "Work", "fitted"]

T = TypeVar("T")


class Held(Protocol):
    """What a recipe needs of a lease in either form."""

    @property
    def fencing_token(self) -> int: ...
    def check(self) -> None: ...
    def guard(self, session_or_connection: Any, /) -> Any: ...


class Work(Protocol):
    """Locks, transactions and calls of the application, in one form."""

    def hold(
        self, lock_key: str, *, ttl: Seconds, at_least: Seconds = 0
    ) -> AbstractAsyncContextManager[Held]:
        """Hold a lease without waiting; see ``LockProvider.hold``."""
        ...

    async def guarded(self, lease: Held, work: Callable[[Session], T]) -> T:
        """Run ``work`` in a transaction that proves the lease first, and commit."""
        ...

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of the application, which is a coroutine function in the asyncio form."""
        ...


class BlockingWork:
    """The blocking form; ``sessions`` is left out where a recipe keeps no rows."""

    def __init__(self, provider: LockProvider, sessions: sessionmaker[Any] | None = None) -> None:
        self._provider = provider
        self._sessions = sessions

    @asynccontextmanager
    async def hold(self, lock_key: str, *, ttl: Seconds, at_least: Seconds = 0) -> AsyncGenerator[Held]:
        with self._provider.hold(lock_key, ttl=ttl, at_least=at_least) as lease:
            yield lease

    async def guarded(self, lease: Held, work: Callable[[Session], T]) -> T:
        assert self._sessions is not None
        with self._sessions.begin() as session:
            lease.guard(session)
            return work(session)

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)


class AsyncioWork:
    """The asyncio form; ``sessions`` is left out where a recipe keeps no rows."""

    def __init__(self, provider: AsyncLockProvider, sessions: async_sessionmaker[Any] | None = None) -> None:
        self._provider = provider
        self._sessions = sessions

    def hold(
        self, lock_key: str, *, ttl: Seconds, at_least: Seconds = 0
    ) -> AbstractAsyncContextManager[Held]:
        return self._provider.hold(lock_key, ttl=ttl, at_least=at_least)

    async def guarded(self, lease: Held, work: Callable[[Session], T]) -> T:
        assert self._sessions is not None
        async with self._sessions.begin() as session:
            await lease.guard(session)
            done: T = await session.run_sync(work)
        return done

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await function(*arguments)


def fitted(function: Callable[..., T]) -> Callable[..., T]:
    """Return a function of one argument; one that takes none is called without it."""
    try:
        inspect.signature(function).bind(None)
    except TypeError:

        def without(_given: object) -> T:
            return function()

        return without
    except ValueError:  # some built-in functions do not tell
        pass
    return function
