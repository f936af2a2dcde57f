"""A worker of the demo that breaks every lock before it asks: what the demo's check has to notice."""

from sqllocks import LockHandle, Seconds, SqlLockProvider
from sqllocks.cli.demo import worker


class Careless(SqlLockProvider):
    """Takes the key whoever holds it."""

    def locked(self, lock_key: str) -> bool:
        return False

    def acquire(self, lock_key: str, *, ttl: Seconds, owner_token: str | None = None) -> LockHandle:
        self.break_lock(lock_key)
        return super().acquire(lock_key, ttl=ttl, owner_token=owner_token)


if __name__ == "__main__":
    worker.main(Careless)
