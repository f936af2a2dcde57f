"""A place for leases that writes down each statement, and can hold it back or fail it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from sqllocks.backends.base import Answers
from sqllocks.backends.memory import MemoryLeases
from sqllocks.dialects.base import Fault, FaultKind, Want

__all__ = [
    "CALLER",
    "PATIENCE",
    "AsyncioStatements",
    "BlockingStatements",
    "Statement",
    "Statements",
    "claim_of",
    "fault",
    "release_of",
]

PATIENCE = 20.0
"""Seconds after which an answer that did not come fails the test."""
CALLER: ContextVar[str] = ContextVar("CALLER", default="nobody")


@dataclass(frozen=True)
class Statement:
    """One statement as the server sees it."""

    name: str
    keys: tuple[str, ...]
    caller: str
    """Whose context it was sent in."""


class Statements(MemoryLeases):
    """Leases in memory behind something that looks like a server."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[Statement] = []
        self.fails: Callable[[str, Sequence[str]], BaseException | None] = lambda name, keys: None
        """Says what a statement is to fail with, if it is."""
        self.carries_out = False
        """Whether a statement that fails is carried out all the same."""

    async def claim(self, wants: Sequence[Want]) -> Answers:
        return await self._through("claim", wants, super().claim)

    async def renew(self, wants: Sequence[Want], *, values: bool = True, revive: bool = False) -> Answers:
        return await self._through("renew", wants, super().renew)

    async def release(self, wants: Sequence[Want]) -> Answers:
        return await self._through("release", wants, super().release)

    def names(self) -> list[str]:
        """Return the names of the statements so far."""
        return [statement.name for statement in self.sent]

    def held(self) -> list[str]:
        """Return the keys that are held."""
        return [key for key, row in self._rows.items() if row.attempt]

    async def _through(self, name: str, wants: Sequence[Want], carry_out: Any) -> Answers:
        keys = tuple(want.key for want in wants)
        self.sent.append(Statement(name, keys, CALLER.get()))
        await self._take_time(name, keys)
        failure = self.fails(name, keys)
        if failure is not None:
            if self.carries_out:
                await carry_out(wants)
            raise failure
        answers: Answers = await carry_out(wants)
        return answers

    async def _take_time(self, name: str, keys: Sequence[str]) -> None:
        raise NotImplementedError


class AsyncioStatements(Statements):
    """Statements that wait on the loop for ``gate``."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()

    async def _take_time(self, name: str, keys: Sequence[str]) -> None:
        await asyncio.sleep(0)
        await self.gate.wait()


class BlockingStatements(Statements):
    """Statements that block their thread for ``gate``."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.arrived = threading.Semaphore(0)
        """Counts the statements that have arrived."""

    async def _take_time(self, name: str, keys: Sequence[str]) -> None:
        self.arrived.release()
        assert self.gate.wait(PATIENCE)


def fault(kind: FaultKind = FaultKind.OTHER) -> Fault:
    """Return a failure of the server, with the driver's error as its cause."""
    failure = Fault(kind, kind.value)
    failure.__cause__ = ValueError("the driver's error")
    return failure


def claim_of(key: str, attempt: str = "attempt") -> list[Want]:
    """Return the elements of a claim."""
    return [Want(key, "owner", attempt, 60_000_000, "holder")]


def release_of(key: str) -> list[Want]:
    """Return the elements of a release."""
    return [Want(key, "owner")]
