"""What providers, lockers and electors are, whatever stands behind them."""

from sqllocks.protocols.asynchronous import AsyncLockProvider
from sqllocks.protocols.blocking import LockProvider
from sqllocks.protocols.electors import AsyncElector, Elector
from sqllocks.protocols.lockers import AsyncLocker, Locker

__all__ = ["AsyncElector", "AsyncLockProvider", "AsyncLocker", "Elector", "LockProvider", "Locker"]
