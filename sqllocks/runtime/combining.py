"""What both forms of the combining queue share: a backend in front of the lock table.

The one who sends for several is never one of them: a task of its own, or a daemon thread. So a cancel or a
``KeyboardInterrupt`` in one caller leaves the others served.
"""

from __future__ import annotations

import copy
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from operator import attrgetter
from typing import Any
from weakref import WeakSet

from sqllocks.backends.base import Answers, LeaseBackend, Stored
from sqllocks.core.combining import Call, Kind
from sqllocks.dialects.base import REFUSALS, Fault, FaultKind, StoredLock, Verdict, Want

__all__ = ["OVERDUE", "Combiner", "fail", "own", "stopped"]

OVERDUE = 1.0
"""Seconds without an answer after which one more statement may go beside the one that others wait for."""
_BY_KEY = attrgetter("key")
MAY_DIFFER = (*REFUSALS, FaultKind.FULL, FaultKind.OTHER)
"""What fails for several together need not fail for each."""


class Combiner(ABC):
    """What both forms share: the backend's methods, and what becomes of a batch."""

    def __init__(self, backend: LeaseBackend) -> None:
        self._backend = backend
        self.capabilities = backend.capabilities
        # a locked file is locked for each of them, and each asks again by itself
        single = backend.capabilities.single_writer
        self._alone_if = tuple(kind for kind in MAY_DIFFER if not (single and kind in REFUSALS))
        _EVERYONE.add(self)
        self.freed: Callable[[str], None] = lambda _: None
        backend.freed = lambda key: self.freed(key)  # noqa: PLW0108 - it is set later

    # no coroutines of their own, which each call would have to pass through

    def claim(self, wants: Sequence[Want]) -> Coroutine[Any, Any, Answers]:
        return self._call(Kind.CLAIM, wants)

    def renew(
        self, wants: Sequence[Want], *, values: bool = True, revive: bool = False
    ) -> Coroutine[Any, Any, Answers]:
        return self._call(Kind.REVIVE if revive else Kind.RENEW, wants, values=values)

    def release(self, wants: Sequence[Want]) -> Coroutine[Any, Any, Answers]:
        return self._call(Kind.RELEASE, wants)

    async def break_(self, wants: Sequence[Want]) -> Answers:
        return await self._backend.break_(wants)

    async def read(self, keys: Sequence[str]) -> Stored:
        return await self._backend.read(keys)

    def takeable(self, row: StoredLock) -> bool:
        return self._backend.takeable(row)

    async def lockers(self, key: str) -> Sequence[str]:
        return await self._backend.lockers(key)

    async def list(self, prefix: str) -> Sequence[StoredLock]:
        return await self._backend.list(prefix)

    async def purge(self, prefix: str, idle: int) -> int:
        return await self._backend.purge(prefix, idle)

    async def create_table(self) -> None:
        await self._backend.create_table()

    @abstractmethod
    def forget_parent(self) -> None:
        """In a forked child: what the parent has in flight is none of its own."""

    @abstractmethod
    async def _call(self, kind: Kind, wants: Sequence[Want], *, values: bool = True) -> Answers: ...

    def _send(self, kind: Kind, wants: Sequence[Want], *, values: bool) -> Coroutine[Any, Any, Answers]:
        if kind is Kind.CLAIM:
            return self._backend.claim(wants)
        if kind is Kind.RELEASE:
            return self._backend.release(wants)
        return self._backend.renew(wants, values=values, revive=kind is Kind.REVIVE)

    async def _serve(self, batch: Sequence[Call]) -> None:
        """Send one statement for several calls, and give each its answers or its error."""
        first = batch[0]
        wants = sorted([want for call in batch for want in call.wants], key=_BY_KEY)
        try:
            answers = await self._send(first.kind, wants, values=first.values)
            for call in batch:
                call.answers = answers
        except Fault as fault:
            if len(batch) == 1 or fault.kind not in self._alone_if:
                # after a lost answer nobody knows what was carried out: each caller settles that for itself
                fail(batch, fault)
            else:
                await self._one_by_one(batch, fault)
        except Exception as error:  # noqa: BLE001 - it is raised in each caller
            fail(batch, error)
        except BaseException:
            fail(batch, stopped())
            raise

    async def _one_by_one(self, batch: Sequence[Call], whole: Fault) -> None:
        """Send each call by itself, once."""
        doubt = whole.kind not in REFUSALS
        for place, call in enumerate(batch):
            try:
                call.answers = await self._send(call.kind, call.wants, values=call.values)
            except Exception as error:  # noqa: BLE001 - it is raised in its caller
                call.error = error
            except BaseException:
                fail(batch[place:], stopped())
                raise
            if doubt and call.kind is Kind.RELEASE and _refused(call):
                # perhaps because the first statement has freed it
                call.error = whole


# forked children must not wait for what only a thread of the parent could end
_EVERYONE: WeakSet[Combiner] = WeakSet()


def _forget_parent() -> None:
    for combiner in list(_EVERYONE):
        combiner.forget_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parent)


def _refused(call: Call) -> bool:
    answers = call.answers or {}
    return any(answers[want.key].verdict is Verdict.REFUSED for want in call.wants)


def stopped() -> Fault:
    """Return what the callers get of a statement that was stopped: they settle what it did."""
    return Fault(FaultKind.GONE, "the statement that was shared with others was stopped")


def fail(batch: Sequence[Call], error: BaseException) -> None:
    """Give several calls the same error."""
    for call in batch:
        call.error = error


def own(error: BaseException) -> BaseException:
    """Return an error for one of several callers: the traceback of a shared one would grow with each."""
    if isinstance(error, Fault):
        fault = Fault(error.kind, error.message, sent=error.sent)
        fault.__cause__ = error.__cause__
        return fault
    try:
        another = copy.copy(error)
    except Exception:  # noqa: BLE001 - a class of its own with other arguments
        return error
    another.__cause__ = error
    return another
