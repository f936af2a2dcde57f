"""The port between decisions and the world: time, and statements on database sessions.

Core and backends are ``async def`` over this port. A blocking port never suspends, an asyncio port
really awaits, and a stepping port lets tests choose what happens at each step.
"""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

from sqllocks.dialects.base import LeaseDialect, Parameters, Result, Statement

__all__ = ["IO", "Clock", "Session", "Sessions"]

T = TypeVar("T")


class Session(Protocol):
    """One autocommit session on the server."""

    @property
    def sql(self) -> LeaseDialect:
        """The statements of the dialect that this session speaks."""
        ...

    async def query(self, statement: Statement, parameters: Parameters) -> Result:
        """Run one statement; raises ``Fault``."""
        ...


class Sessions(Protocol):
    """Where a backend borrows its sessions."""

    def session(self) -> AbstractAsyncContextManager[Session]:
        """Borrow a session; one that failed or was interrupted is thrown away afterwards."""
        ...


class Clock(Protocol):
    """Local time and waiting."""

    def now(self) -> float:
        """Return monotonic seconds; only differences mean anything."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait; the caller may be cancelled here."""
        ...

    async def shielded(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Run ``work`` to its end whatever is cancelled meanwhile; ``None`` where it goes on behind."""
        ...


class IO(Sessions, Clock, Protocol):
    """Everything that a run of the core needs from outside."""
