"""Distributed locks, fencing tokens and leader election in the SQL database that you already run."""

from sqllocks.decorators import locked
from sqllocks.errors import (
    BackendUnavailable,
    BackendUnsupported,
    LeaseLost,
    LockError,
    LockNotAcquired,
    LockTimeout,
    LockValidationError,
    SchemaMissing,
    StaleFencingToken,
    TransactionConflict,
)
from sqllocks.fencing import accepts, async_guard, guard
from sqllocks.lease import AsyncLease, Lease
from sqllocks.model import LockHandle, LockInfo, Seconds
from sqllocks.protocols import AsyncLockProvider, LockProvider
from sqllocks.providers import (
    AsyncMemoryLockProvider,
    AsyncSqlLockProvider,
    MemoryLockProvider,
    SqlLockProvider,
)

__all__ = [
    "AsyncLease",
    "AsyncLockProvider",
    "AsyncMemoryLockProvider",
    "AsyncSqlLockProvider",
    "BackendUnavailable",
    "BackendUnsupported",
    "Lease",
    "LeaseLost",
    "LockError",
    "LockHandle",
    "LockInfo",
    "LockNotAcquired",
    "LockProvider",
    "LockTimeout",
    "LockValidationError",
    "MemoryLockProvider",
    "SchemaMissing",
    "Seconds",
    "SqlLockProvider",
    "StaleFencingToken",
    "TransactionConflict",
    "accepts",
    "async_guard",
    "guard",
    "locked",
]
