"""What an elector is, whatever stands behind it."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

from sqllocks.diagnosis import Diagnosis
from sqllocks.model import LockInfo, Seconds
from sqllocks.session_lock import AsyncTerm, Term

__all__ = ["AsyncElector", "Elector"]


@runtime_checkable
class Elector(Protocol):
    """Leader election: what every elector of the blocking form offers."""

    def run(
        self, key: str, on_elected: Callable[[Term], Any], *, stop: threading.Event | None = None
    ) -> None:
        """Stand for ``key``, lead, and stand again, until ``stop`` is set.

        ``on_elected(term)`` runs in this thread for as long as it wants to lead; it is to return soon after
        ``term.lost`` turns true. When it returns, the key is given up and stood for again, after a pause of
        ``retry`` where the term was shorter than that. Never are two callbacks of one call running.

        An exception of the callback ends the term, frees the key and leaves ``run``, or goes to
        ``on_error`` of the elector, and the candidate stands again after ``retry``. Errors of the database
        do not leave it, except ``BackendUnsupported``, ``LockValidationError`` and ``SchemaMissing`` at the
        first contact.
        """
        ...

    def leader(self, key: str) -> LockInfo | None:
        """Return who leads, ``None`` where nobody does. Raises ``BackendUnavailable``."""
        ...

    def diagnose(self) -> Diagnosis:
        """Return what the server can and cannot do for locks; changes nothing.

        What is wrong is a finding, not an error. About a dozen questions are asked: version and settings,
        whether it takes writes, the table and the rights on it, a pooler in between, the clocks, and
        whether session locks exclude.
        """
        ...

    def close(self, timeout: Seconds | None = 10) -> None:
        """Wait up to ``timeout`` seconds for terms to end, then give up what is still led."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@runtime_checkable
class AsyncElector(Protocol):
    """Leader election: what every elector of the asyncio form offers."""

    async def run(self, key: str, on_elected: Callable[[AsyncTerm], Awaitable[Any]]) -> None:
        """Stand for ``key``, lead, and stand again, until cancelled.

        ``on_elected(term)`` runs in a task of its own for as long as it wants to lead; when the term is lost
        it is cancelled, and awaited before the candidate stands again. When it returns, the key is given up
        and stood for again, after a pause of ``retry`` where the term was shorter than that. Never are two
        callbacks of one call running. A cancel of ``run`` cancels the callback, waits for it, gives the key
        up, and goes on.

        An exception of the callback ends the term, frees the key and leaves ``run``, or goes to
        ``on_error`` of the elector, and the candidate stands again after ``retry``. Errors of the database
        do not leave it, except ``BackendUnsupported``, ``LockValidationError`` and ``SchemaMissing`` at the
        first contact.
        """
        ...

    async def leader(self, key: str) -> LockInfo | None:
        """Return who leads, ``None`` where nobody does. Raises ``BackendUnavailable``."""
        ...

    async def diagnose(self) -> Diagnosis:
        """Return what the server can and cannot do for locks; changes nothing.

        What is wrong is a finding, not an error. About a dozen questions are asked: version and settings,
        whether it takes writes, the table and the rights on it, a pooler in between, the clocks, and
        whether session locks exclude.
        """
        ...

    async def aclose(self, timeout: Seconds | None = 10) -> None:
        """Wait up to ``timeout`` seconds for terms to end, then give up what is still led."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
