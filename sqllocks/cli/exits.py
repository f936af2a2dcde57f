"""Exit codes, as sysexits.h and the shells have them."""

from __future__ import annotations

from sqllocks.errors import (
    LeaseLost,
    LockError,
    LockNotAcquired,
    LockValidationError,
)

__all__ = [
    "BUSY",
    "CANNOT_START",
    "FAILURES",
    "LOST",
    "NO",
    "NOT_FOUND",
    "OK",
    "UNAVAILABLE",
    "USAGE",
    "WARNINGS",
    "of_error",
    "of_signal",
]

OK = 0
NO = 1
"""The command worked and its answer is no."""
WARNINGS = 1
"""A diagnosis has warnings, and no failure."""
FAILURES = 2
"""A diagnosis has failures."""
USAGE = 64
UNAVAILABLE = 69
LOST = 70
BUSY = 75
CANNOT_START = 126
NOT_FOUND = 127


def of_error(error: LockError) -> int:
    """Return the exit code for an error of the library."""
    if isinstance(error, LockValidationError):
        return USAGE
    if isinstance(error, LockNotAcquired):
        return BUSY
    if isinstance(error, LeaseLost):
        return LOST
    # down, without the table, or of a kind that cannot hold locks: no service from it either way
    return UNAVAILABLE


def of_signal(number: int) -> int:
    """Return the exit code for a process that a signal ended."""
    return 128 + number
