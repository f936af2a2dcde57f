"""How the lock of the migrations is obtained: a session lock where the server can, else a lease."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from time import sleep
from typing import Any, Protocol

from sqlalchemy import Engine

from sqllocks.errors import (
    BackendUnavailable,
    BackendUnsupported,
    LeaseLost,
    LockError,
    LockNotAcquired,
    LockTimeout,
    SchemaMissing,
)
from sqllocks.lease import Lease
from sqllocks.lockers import SqlLocker
from sqllocks.providers import SqlLockProvider
from sqllocks.runtime.clock import now
from sqllocks.session_lock import SessionLock

__all__ = ["Held", "Wish", "migration_lock"]

# under "alembic", because fileConfig() in env.py disables every logger that alembic.ini does not name
logger = logging.getLogger("alembic.sqllocks")
_UNKNOWN = "held by a session that has not said who it is"
_GRACE = 1.0
"""Seconds in which a holder says who it is."""
_LOOK = 0.02


class Held(Protocol):
    """A lock that is held, of either kind."""

    waited: float
    """Seconds that passed while somebody else had it."""

    def check(self) -> None:
        """Raise ``LeaseLost`` where it is known to be lost; asks no database."""
        ...

    def guard(self, session_or_connection: Any, /) -> None:
        """Prove it in the caller's transaction, and keep it until that ends."""
        ...

    def ask(self) -> None:
        """Ask the server for it on the lock's own connection, and raise ``LeaseLost`` where it is lost."""
        ...


@dataclass(frozen=True, slots=True)
class Wish:
    """Which lock is wanted; ``wait`` and ``ttl`` in seconds, ``None`` waits without limit."""

    key: str
    ttl: float
    wait: float | None


class _HeldLease:
    waited = 0.0

    def __init__(self, lease: Lease, ttl: float) -> None:
        self.check = lease.check
        self.guard = lease.guard
        self._lease = lease
        self._ttl = ttl

    def ask(self) -> None:
        _unless_silent(lambda: self._lease.extend(ttl=self._ttl))
        self.check()


class _HeldSession:
    waited = 0.0

    def __init__(self, lock: SessionLock) -> None:
        self.check = lock.check
        self.guard = lock.guard
        self._lock = lock

    def ask(self) -> None:
        _unless_silent(self._lock.held)
        self.check()


def _unless_silent(question: Callable[[], object]) -> None:
    try:
        question()
    except BackendUnavailable as error:
        # still trusted until its time is over, and the check that follows knows when that is
        logger.warning("the lock of the migrations could not be asked for: %s", error.message)


@contextmanager
def migration_lock(engine: Engine, wish: Wish) -> Generator[Held]:
    """Hold the lock in a block.

    Makes the lock table first where it is missing, in a statement of its own. Blocks for up to
    ``wish.wait`` seconds; raises ``LockTimeout``, and at the end of the block ``LeaseLost`` where the
    lock was lost.
    """
    done = False
    try:
        with SqlLockProvider(engine) as provider, ExitStack() as stack:
            _make_table(provider, wish.key)
            yield _obtain(stack, provider, engine, wish)
            done = True
    except (SchemaMissing, LeaseLost):
        # nothing is left to give back where the migrations themselves dropped the lock table
        if not done or not _dropped(engine, wish.key):
            raise
        logger.info("the lock %r ended with its table", wish.key)


def _dropped(engine: Engine, key: str) -> bool:
    try:
        with SqlLockProvider(engine) as provider:
            provider.inspect(key)
    except SchemaMissing:
        return True
    return False


def _make_table(provider: SqlLockProvider, key: str) -> None:
    try:
        provider.inspect(key)
    except SchemaMissing:
        # not always: most starts find a table, and have no right to make one perhaps
        provider.create_table()


def _obtain(stack: ExitStack, provider: SqlLockProvider, engine: Engine, wish: Wish) -> Held:
    """Take the lock until the stack ends; a session lock and a lease of the same key exclude each other."""

    def lease(wait: float | None) -> Held:
        held = stack.enter_context(provider.hold(wish.key, ttl=wish.ttl, wait=wait))
        return _HeldLease(held, wish.ttl)

    try:
        # two heartbeats may be lost before the lock is
        locker = stack.enter_context(SqlLocker(engine, lease=wish.ttl, heartbeat=wish.ttl / 4))

        def session(wait: float | None) -> Held:
            return _HeldSession(stack.enter_context(locker.lock(wish.key, wait=wait)))

        return _waited(session, provider, wish)
    except BackendUnsupported as reason:
        logger.info("a lease guards the migrations, because session locks cannot: %s", reason.message)
        return _waited(lease, provider, wish)


def _waited(take: Callable[[float | None], Held], provider: SqlLockProvider, wish: Wish) -> Held:
    """Take the lock, and tell for whom one waits; both kinds poll, and wait in no transaction."""
    started = now()
    held, holder = _refused(take, provider, wish)
    if held is not None:
        return held
    if wish.wait == 0:
        raise _timeout(wish, holder)
    limit = "without limit" if wish.wait is None else f"up to {wish.wait:g} s"
    logger.warning("waiting %s for %r: it is %s", limit, wish.key, holder)
    left = None if wish.wait is None else max(started + wish.wait - now(), 0.0)
    try:
        held = take(left)
    except LockNotAcquired as busy:
        raise _timeout(wish, _who(provider, wish.key) or _UNKNOWN) from busy
    held.waited = now() - started
    logger.info("got %r after %.1f s", wish.key, held.waited)
    return held


def _refused(
    take: Callable[[float | None], Held], provider: SqlLockProvider, wish: Wish
) -> tuple[Held | None, str]:
    """Return the lock where it is free, else who has it."""
    limit = now() + _GRACE
    while True:
        with suppress(LockNotAcquired):
            try:
                return take(0), ""
            except BackendUnavailable as error:
                # one who waits goes on over errors that pass
                if wish.wait == 0:
                    raise
                return None, f"held or not, the database did not say ({error.message})"
        # a session lock is taken at the server first, and its row says who has it a moment later
        holder = _who(provider, wish.key)
        if holder is not None or now() > limit:
            return None, holder or _UNKNOWN
        sleep(_LOOK)


def _who(provider: SqlLockProvider, key: str) -> str | None:
    try:
        info = provider.inspect(key)
    except LockError as error:
        return f"held, but by whom could not be asked ({error.message})"
    if info is None or not info.held:
        return None
    since = f" since {info.acquired_at.isoformat()}" if info.acquired_at else ""
    until = f", until {info.expires_at.isoformat()} unless renewed" if info.expires_at else ""
    return f"held by {info.holder!r}{since} ({info.kind}, token {info.fencing_token}{until})"


def _timeout(wish: Wish, holder: str) -> LockTimeout:
    return LockTimeout(
        f"no migration was applied: {wish.key!r} is not free after a wait of {wish.wait or 0:g} s; it is "
        f"{holder}. Wait longer for a migrator that is at work. One that died loses it by "
        f"itself; for one that is stuck, end its process, then `sqllocks break {wish.key} --url URL`.",
        details={"lock_key": wish.key},
    )
