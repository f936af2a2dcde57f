"""What a locker is, whatever stands behind it."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from sqllocks.diagnosis import Diagnosis
from sqllocks.model import LockInfo, Seconds
from sqllocks.session_lock import AsyncSessionLock, SessionLock

__all__ = ["AsyncLocker", "Locker"]


@runtime_checkable
class Locker(Protocol):
    """Locks that end with a session: what every locker of the blocking form offers."""

    def lock(self, key: str, *, wait: Seconds | None = None) -> SessionLock:
        """Take a lock, waiting up to ``wait`` seconds (0: not at all, ``None``: without limit).

        Nothing waits at the server: the lock is tried for, with a wake-up where the server can send one
        (PostgreSQL) and with pauses of at most 0.5 s elsewhere. Not re-entrant.

        Raises ``LockTimeout`` (``LockNotAcquired`` where ``wait`` is 0) naming the holder,
        ``LockValidationError`` before any SQL, ``BackendUnavailable`` where the answer is unknown or the
        row of the lock cannot be stored, ``BackendUnsupported`` where the server's session locks exclude
        nobody, ``SchemaMissing`` without the table.
        """
        ...

    def try_lock(self, key: str) -> SessionLock | None:
        """Take a lock, or return ``None`` where it is held; waits for nobody. Raises as ``lock`` does."""
        ...

    def inspect(self, key: str) -> LockInfo | None:
        """Return who holds the key, however it is held; ``None`` for a key that was never used."""
        ...

    def list_locks(self, *, prefix: str = "") -> list[LockInfo]:
        """Return all keys that start with ``prefix``, sorted by key, leases too."""
        ...

    def create_table(self) -> None:
        """Create the table where it is missing; harmless from several processes at once."""
        ...

    def diagnose(self) -> Diagnosis:
        """Return what the server can and cannot do for locks; changes nothing.

        What is wrong is a finding, not an error. About a dozen questions are asked: version and settings,
        whether it takes writes, the table and the rights on it, a pooler in between, the clocks, and
        whether session locks exclude.
        """
        ...

    def close(self, timeout: Seconds | None = 10) -> None:
        """Keep the locks until their blocks end or ``timeout`` seconds are over, then give them back."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@runtime_checkable
class AsyncLocker(Protocol):
    """Locks that end with a session: what every locker of the asyncio form offers."""

    async def lock(self, key: str, *, wait: Seconds | None = None) -> AsyncSessionLock:
        """Take a lock, waiting up to ``wait`` seconds (0: not at all, ``None``: without limit).

        Nothing waits at the server: the lock is tried for, with a wake-up where the server can send one
        (PostgreSQL) and with pauses of at most 0.5 s elsewhere. Not re-entrant.

        Raises ``LockTimeout`` (``LockNotAcquired`` where ``wait`` is 0) naming the holder,
        ``LockValidationError`` before any SQL, ``BackendUnavailable`` where the answer is unknown or the
        row of the lock cannot be stored, ``BackendUnsupported`` where the server's session locks exclude
        nobody, ``SchemaMissing`` without the table.
        """
        ...

    async def try_lock(self, key: str) -> AsyncSessionLock | None:
        """Take a lock, or return ``None`` where it is held; waits for nobody. Raises as ``lock`` does."""
        ...

    async def inspect(self, key: str) -> LockInfo | None:
        """Return who holds the key, however it is held; ``None`` for a key that was never used."""
        ...

    async def list_locks(self, *, prefix: str = "") -> list[LockInfo]:
        """Return all keys that start with ``prefix``, sorted by key, leases too."""
        ...

    async def create_table(self) -> None:
        """Create the table where it is missing; harmless from several processes at once."""
        ...

    async def diagnose(self) -> Diagnosis:
        """Return what the server can and cannot do for locks; changes nothing.

        What is wrong is a finding, not an error. About a dozen questions are asked: version and settings,
        whether it takes writes, the table and the rights on it, a pooler in between, the clocks, and
        whether session locks exclude.
        """
        ...

    async def aclose(self, timeout: Seconds | None = 10) -> None:
        """Keep the locks until their blocks end or ``timeout`` seconds are over, then give them back."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
