"""What a lock provider is, whatever stands behind it."""

from sqllocks.protocols.asynchronous import AsyncLockProvider
from sqllocks.protocols.blocking import LockProvider

__all__ = ["AsyncLockProvider", "LockProvider"]
