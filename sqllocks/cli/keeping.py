"""One lease kept by the library while a command runs."""

from __future__ import annotations

import enum
import logging
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

from sqllocks.core.claiming import Grant
from sqllocks.errors import LockError
from sqllocks.lease import Lease
from sqllocks.policy import checked_wait
from sqllocks.providers import SqlLockProvider
from sqllocks.runtime.blocking import drive

__all__ = ["Ending", "KeepingProvider", "give_back", "telling"]


class KeepingProvider(SqlLockProvider):
    """Does what ``hold`` does in two steps: between them there is no keeper, and so no second thread."""

    _caller = "the command line"

    def take(self, lock_key: str, *, ttl: float, owner_token: str, wait: float) -> Grant:
        """Return a lease that nobody keeps yet, or raise as ``require_acquire``."""
        want = self._leases.names.want(lock_key, ttl, owner_token)
        return drive(self._leases.grant(want, checked_wait(wait)))

    def keep(self, grant: Grant, *, at_least: int = 0) -> Lease:
        """Begin to renew a lease, which another provider of the same table may have taken.

        ``at_least`` in microseconds: how long the key stays taken after the grant, released or not.
        """
        return Lease(self._holding, self._holding.begin(grant, renew=True, at_least=at_least), self._guards)


class Ending(enum.Enum):
    """What became of the lease in the end."""

    RELEASED = "given back"
    LOST = "it was over before"
    UNKNOWN = "no answer"


def give_back(lease: Lease, timeout: float, warn: Callable[[str], None]) -> Ending:
    """Release a lease; wait at most ``timeout`` seconds for the answer, because a network may be dead."""
    endings: list[Ending] = []

    def release() -> None:
        try:
            endings.append(Ending.RELEASED if lease.release() else Ending.LOST)
        except LockError as error:
            endings.append(Ending.UNKNOWN)
            warn(f"{lease.lock_key!r} was not given back, its ttl ends it: {error.message}")

    # daemon: one that hangs must not keep the process
    releasing = threading.Thread(target=release, name="sqllocks-release", daemon=True)
    releasing.start()
    releasing.join(timeout)
    if releasing.is_alive():
        warn(f"{lease.lock_key!r} was not given back in {timeout:g} s, its ttl ends it")
    return endings[0] if endings else Ending.UNKNOWN


@contextmanager
def telling(warn: Callable[[str], None]) -> Generator[None, None, None]:
    """Pass on what the library warns of: a renewal that failed, a loss and its reason."""
    handler = _Passing(warn)
    logger = logging.getLogger("sqllocks")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _Passing(logging.Handler):
    def __init__(self, warn: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._warn = warn

    def emit(self, record: logging.LogRecord) -> None:
        self._warn(record.getMessage())
