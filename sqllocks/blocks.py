"""The blocks of `hold` and `hold_many`: they take leases, keep them for a body and give them back.

One process may hold 100,000 leases, and each has a block: so blocks have slots, and remember what `hold` was
told instead of closures over it. That takes 290 bytes in the place of 860.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Coroutine, Sequence
from types import TracebackType
from typing import Any, Generic, TypeVar

from sqllocks.core.claiming import Grant
from sqllocks.core.holding import Holding
from sqllocks.core.kept import Kept
from sqllocks.core.leases import Leases
from sqllocks.dialects.base import Want
from sqllocks.fencing import Guards, MemoryGuards
from sqllocks.lease import AsyncLease, Lease
from sqllocks.runtime.blocking import drive

__all__ = ["AsyncBody", "AsyncHold", "AsyncHoldMany", "Hold", "HoldMany"]

L = TypeVar("L", Lease, AsyncLease)


class _Block(Generic[L]):
    """One use of `hold` or `hold_many`."""

    __slots__ = ("_at_least", "_guards", "_held", "_holding", "_leases", "_longest", "_renew", "_wants")

    def __init__(
        self,
        leases: Leases,
        holding: Holding,
        guards: Guards | MemoryGuards,
        wants: Sequence[Want],
        longest: float | None,
        *,
        renew: bool,
        at_least: int,
    ) -> None:
        self._leases = leases
        self._holding = holding
        self._guards = guards
        self._wants = wants
        self._longest = longest
        self._renew = renew
        self._at_least = at_least
        # a block without "as" must not lose its lease to the garbage collector
        self._held: Sequence[L] = ()

    def _take(self) -> Coroutine[Any, Any, list[Grant]]:
        if self._held:
            raise RuntimeError("this block was entered already; call hold() once for each use")
        return self._leases.grant_many(self._wants, self._longest)

    def _begin(self, grants: Sequence[Grant], make: type[L]) -> Sequence[L]:
        everything = [
            self._holding.begin(grant, renew=self._renew, at_least=self._at_least) for grant in grants
        ]
        self._held = tuple([make(self._holding, kept, self._guards) for kept in everything])
        self._wants = ()
        return self._held

    @property
    def _kept(self) -> list[Kept]:
        return [lease._kept for lease in self._held]  # pyright: ignore[reportPrivateUsage]


class _BlockingBlock(_Block[Lease]):
    __slots__ = ()

    def _enter(self) -> Sequence[Lease]:
        return self._begin(drive(self._take()), Lease)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        drive(self._holding.end(self._kept, error))


class Hold(_BlockingBlock):
    """The context manager of ``hold`` in the blocking form."""

    __slots__ = ()

    def __enter__(self) -> Lease:
        return self._enter()[0]


class HoldMany(_BlockingBlock):
    """The context manager of ``hold_many`` in the blocking form."""

    __slots__ = ()

    def __enter__(self) -> list[Lease]:
        return list(self._enter())


class AsyncBody:
    """The body of an asyncio block: the loss of one of its locks cancels it.

    It takes the care of ``asyncio.timeout``: only a cancellation of its own becomes ``LeaseLost``, and
    the task's count of cancellations is right afterwards.
    """

    __slots__ = ("__weakref__", "_before", "_cancelled", "_holding", "_inside", "_task")

    def __init__(self, holding: Holding) -> None:
        self._holding = holding
        self._task: asyncio.Task[Any] | None = None
        self._before = 0
        self._inside = False
        self._cancelled = False

    def enter(self, block: Sequence[Kept]) -> None:
        """Begin the body in the present task."""
        self._task = asyncio.current_task()
        self._before = self._task.cancelling() if self._task else 0
        self._inside = True
        cancel = _Cancel(self)
        for kept in block:
            self._holding.on_lost(kept, cancel)

    async def leave(self, block: Sequence[Kept], error: BaseException | None) -> None:
        """End the body: give back, and raise ``LeaseLost`` in the place of a cancellation by the loss."""
        self._inside = False
        ours = self._take_back_cancel()
        if ours and error is None:
            await self._swallow_cancel()
        cancelled = error if ours and isinstance(error, asyncio.CancelledError) else None
        await self._holding.end(block, None if cancelled else error, cause=cancelled)

    def cancel(self) -> None:
        """Cancel the body where it has not ended; from any thread, a finalizer's for example."""
        if self._task is not None:
            self._task.get_loop().call_soon_threadsafe(self._cancel_task)

    def _cancel_task(self) -> None:
        if self._inside and not self._cancelled and self._task is not None:
            self._cancelled = True
            self._task.cancel()

    def _take_back_cancel(self) -> bool:
        """Return whether the body was cancelled by its loss alone, not by anybody else as well."""
        if not self._cancelled or self._task is None:
            return False
        return self._task.uncancel() <= self._before

    async def _swallow_cancel(self) -> None:
        # the body ended before its cancellation reached it; before 3.13 it would hit the next await
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if self._task is not None and self._task.cancelling() > self._before:
                raise


class _Cancel:
    """Cancels a body when it is called.

    Weak: the task may have the lock as its result, and a lock must be collected when nobody has it.
    (``weakref.WeakMethod`` takes 450 bytes more.)
    """

    __slots__ = ("_body",)

    def __init__(self, body: AsyncBody) -> None:
        self._body = weakref.ref(body)

    def __call__(self) -> None:
        body = self._body()
        if body is not None:
            body.cancel()


class _AsyncBlock(_Block[AsyncLease]):
    __slots__ = ("_body",)

    async def _enter(self) -> Sequence[AsyncLease]:
        held = self._begin(await self._take(), AsyncLease)
        self._body = AsyncBody(self._holding)
        self._body.enter(self._kept)
        return held

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._body.leave(self._kept, error)


class AsyncHold(_AsyncBlock):
    """The context manager of ``hold`` in the asyncio form."""

    __slots__ = ()

    async def __aenter__(self) -> AsyncLease:
        return (await self._enter())[0]


class AsyncHoldMany(_AsyncBlock):
    """The context manager of ``hold_many`` in the asyncio form."""

    __slots__ = ()

    async def __aenter__(self) -> list[AsyncLease]:
        return list(await self._enter())
