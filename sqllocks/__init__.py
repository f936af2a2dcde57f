"""Distributed locks, fencing tokens and leader election in the SQL database that you already run."""

from sqllocks.decorators import locked
from sqllocks.diagnosis import Diagnosis, Finding
from sqllocks.electors import AsyncMemoryElector, AsyncSqlElector, MemoryElector, SqlElector
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
from sqllocks.lockers import AsyncMemoryLocker, AsyncSqlLocker, MemoryLocker, SqlLocker
from sqllocks.model import LockHandle, LockInfo, Seconds
from sqllocks.protocols import AsyncElector, AsyncLocker, AsyncLockProvider, Elector, Locker, LockProvider
from sqllocks.providers import (
    AsyncMemoryLockProvider,
    AsyncSqlLockProvider,
    MemoryLockProvider,
    SqlLockProvider,
)
from sqllocks.registry import (
    create_async_elector,
    create_async_elector_auto,
    create_async_locker,
    create_async_provider,
    create_elector,
    create_elector_auto,
    create_locker,
    create_provider,
    register_elector,
    register_locker,
    register_provider,
)
from sqllocks.session_lock import AsyncSessionLock, AsyncTerm, SessionLock, Term

__all__ = [
    "AsyncElector",
    "AsyncLease",
    "AsyncLockProvider",
    "AsyncLocker",
    "AsyncMemoryElector",
    "AsyncMemoryLockProvider",
    "AsyncMemoryLocker",
    "AsyncSessionLock",
    "AsyncSqlElector",
    "AsyncSqlLockProvider",
    "AsyncSqlLocker",
    "AsyncTerm",
    "BackendUnavailable",
    "BackendUnsupported",
    "Diagnosis",
    "Elector",
    "Finding",
    "Lease",
    "LeaseLost",
    "LockError",
    "LockHandle",
    "LockInfo",
    "LockNotAcquired",
    "LockProvider",
    "LockTimeout",
    "LockValidationError",
    "Locker",
    "MemoryElector",
    "MemoryLockProvider",
    "MemoryLocker",
    "SchemaMissing",
    "Seconds",
    "SessionLock",
    "SqlElector",
    "SqlLockProvider",
    "SqlLocker",
    "StaleFencingToken",
    "Term",
    "TransactionConflict",
    "accepts",
    "async_guard",
    "create_async_elector",
    "create_async_elector_auto",
    "create_async_locker",
    "create_async_provider",
    "create_elector",
    "create_elector_auto",
    "create_locker",
    "create_provider",
    "guard",
    "locked",
    "register_elector",
    "register_locker",
    "register_provider",
]
