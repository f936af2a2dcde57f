"""The errors of the library: what happened, to which key, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

__all__ = [
    "BackendUnavailable",
    "BackendUnsupported",
    "LeaseLost",
    "LockError",
    "LockNotAcquired",
    "LockTimeout",
    "LockValidationError",
    "SchemaMissing",
    "StaleFencingToken",
    "TransactionConflict",
]


class LockError(Exception):
    """Base of every error that the library raises.

    ``code`` is a stable text for programs and ``status`` the HTTP status a web application would
    answer with; ``details`` holds plain values (among them ``lock_key`` where one key is meant).
    The driver's own error, where there was one, is the ``__cause__``.
    """

    code: ClassVar[str] = "LOCK_ERROR"
    status: ClassVar[int] = 500

    def __init__(self, message: str, *, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details: dict[str, Any] = dict(details or {})

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, self.details, self.__cause__, self._extra()))

    def _extra(self) -> dict[str, Any]:
        return {}


def _rebuild(
    kind: type[LockError],
    message: str,
    details: dict[str, Any],
    cause: BaseException | None,
    extra: dict[str, Any],
) -> LockError:
    error = kind(message, details=details, **extra)
    error.__cause__ = cause
    return error


class LockNotAcquired(LockError):
    """The key is held by somebody else."""

    code = "LOCK_NOT_ACQUIRED"
    status = 409


class LockTimeout(LockNotAcquired, TimeoutError):
    """The key was still held when the wait ran out; the message names the holder and since when."""


class LeaseLost(LockError):
    """The lock ended before its holder gave it back: it expired, was taken over or was broken."""

    code = "LOCK_LOST"
    status = 409


class StaleFencingToken(LeaseLost):
    """A newer grant of the key exists, or the lease is over: the write must not go on."""

    code = "LOCK_STALE_TOKEN"


class LockValidationError(LockError, ValueError):
    """An argument is outside what the library accepts; nothing was sent to the database."""

    code = "VALIDATION_ERROR"
    status = 400


class TransactionConflict(LockError):
    """The caller's own transaction cannot prove the lock: a conflict victim, or its snapshot is too old.

    ``retryable`` tells whether running the same transaction again can succeed.
    """

    code = "LOCK_TRANSACTION_CONFLICT"
    status = 409

    def __init__(
        self, message: str, *, details: Mapping[str, Any] | None = None, retryable: bool = True
    ) -> None:
        super().__init__(message, details=details)
        self.retryable = retryable

    def _extra(self) -> dict[str, Any]:
        return {"retryable": self.retryable}


class BackendUnavailable(LockError):
    """The database gave no answer: whether the lock is held is unknown, which is not the same as busy.

    For ``release`` and ``extend``, ``details["outcome"]`` is ``"pending"`` (the row was locked by
    somebody's transaction all the time) or ``"unknown"`` (the answer never came).
    """

    code = "LOCK_BACKEND_UNAVAILABLE"
    status = 503


class BackendUnsupported(LockError):
    """This database, version or setting cannot give the promise; the message says why and what to use."""

    code = "LOCK_BACKEND_UNSUPPORTED"
    status = 501


class SchemaMissing(LockError):
    """The lock table is missing or is not the library's; the message has the command that creates it."""

    code = "LOCK_SCHEMA_MISSING"
    status = 500
