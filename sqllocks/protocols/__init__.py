"""What providers, lockers and electors are, whatever stands behind them."""

from sqllocks.protocols.asynchronous import AsyncLockProvider
from sqllocks.protocols.blocking import LockProvider
from sqllocks.protocols.lockers import AsyncLocker, Locker

__all__ = ["AsyncLockProvider", "AsyncLocker", "LockProvider", "Locker"]
