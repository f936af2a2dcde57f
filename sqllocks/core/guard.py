"""What a guard proves: from the row that it locked to a verdict, and who is told that a lease is pinned."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from sqllocks.dialects.guards import View
from sqllocks.errors import LockError, LockValidationError, StaleFencingToken, TransactionConflict

__all__ = ["Claim", "Ending", "Granted", "Pins", "checked_at_most", "checked_claim", "conflict", "objection"]


class Ending(enum.Enum):
    """How a transaction of the application ended."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    UNKNOWN = "unknown"
    """A commit that failed, or a connection that was closed or broke in the middle."""


class Pins(Protocol):
    """Is told when the application's transactions pin a lease and stop its renewals and releases too.

    Both are called in the thread (or the event loop's greenlet) of the transaction, must not use its
    connection and should not raise. ``key`` is the row's, with the namespace. Calls nest where two
    transactions pin one lease at a time; a second guard in the same transaction is not told again.
    """

    def pinned(self, key: str, owner: str, token: int) -> None:
        """From now on the row is locked by a transaction of this process."""
        ...

    def unpinned(self, key: str, owner: str, token: int, ending: Ending) -> None:
        """That transaction has ended on the server; ``commit()`` returns once this has returned."""
        ...


@dataclass(frozen=True, slots=True)
class Claim:
    """The grant that somebody says is theirs; ``key`` as the row has it, ``name`` as the caller has it."""

    key: str
    name: str
    owner: str
    token: int


class Granted(Protocol):
    """What a ``LockHandle`` and a ``Lease`` have in common."""

    @property
    def acquired(self) -> bool: ...
    @property
    def lock_key(self) -> str: ...
    @property
    def owner_token(self) -> str: ...
    @property
    def fencing_token(self) -> int: ...


def checked_claim(handle: Granted, key: str) -> Claim:
    """Return what a handle claims; raises ``LockValidationError`` for one that was not granted."""
    if not handle.acquired:
        raise LockValidationError(
            f"this handle of lock {handle.lock_key!r} was not granted, so there is nothing to prove",
            details={"lock_key": handle.lock_key},
        )
    return Claim(key, handle.lock_key, handle.owner_token, handle.fencing_token)


def checked_at_most(at_most: Any) -> int | None:
    """Return the longest idle time in whole milliseconds, or raise ``LockValidationError``."""
    if at_most is None:
        return None
    seconds = at_most.total_seconds() if isinstance(at_most, timedelta) else at_most
    number = not isinstance(seconds, bool) and isinstance(seconds, int | float)
    if not number or not math.isfinite(seconds) or seconds <= 0:
        raise LockValidationError(
            f"at_most must be seconds (a number above 0) or a timedelta, not {at_most!r:.40}",
            details={"argument": "at_most"},
        )
    # the server keeps the setting in 31 bits
    return math.ceil(min(seconds * 1000, 2**31 - 1))


def objection(claim: Claim, view: View) -> LockError | None:
    """Return why the view does not prove the claim, or ``None`` where it does.

    Owner and token decide. The expiry is judged where the row is the present one; a snapshot may show
    one from before the last renewal, and says nothing about a grant that it does not contain yet.
    """
    row = view.row
    too_early = row is None or row.token < claim.token
    if too_early and view.frozen:
        return _too_old(claim)
    if too_early and view.lagging:
        return conflict(claim, "this node of the cluster has not applied the grant yet", retryable=True)
    reason = _staleness(claim, view)
    if reason is not None:
        return StaleFencingToken(
            f"token {claim.token} of lock {claim.name!r} is stale: {reason}; nothing may be written under it",
            details={
                "lock_key": claim.name,
                "fencing_token": claim.token,
                "present_token": row.token if row else None,
            },
        )
    if row is not None and (row.snapshot is None or row.snapshot < claim.token):
        return _too_old(claim)
    return None


def _staleness(claim: Claim, view: View) -> str | None:
    row = view.row
    if row is None:
        return "there is no such lock any more, or this session is on another database"
    checks = (
        (row.token != claim.token, f"the present token is {row.token}"),
        (row.owner != claim.owner, "the lock was broken, or belongs to another owner token"),
        (row.attempt == "", "the lock was released"),
        (not row.live and not view.frozen, "the lease has expired"),
    )
    return next((reason for applies, reason in checks if applies), None)


def _too_old(claim: Claim) -> TransactionConflict:
    reason = f"the transaction's snapshot is older than the grant of token {claim.token}"
    return conflict(claim, reason, retryable=False)


def conflict(claim: Claim, reason: str, *, retryable: bool) -> TransactionConflict:
    """Return the error for a transaction that cannot prove anything."""
    remedy = "run it again" if retryable else "call guard first in it, or use READ COMMITTED"
    nothing = "The transaction proves nothing; roll it back and"
    return TransactionConflict(
        f"could not guard {claim.name!r}: {reason}. {nothing} {remedy}",
        details={"lock_key": claim.name},
        retryable=retryable,
    )
