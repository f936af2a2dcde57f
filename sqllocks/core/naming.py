"""Keys as callers know them and as rows have them, and errors that name them."""

from __future__ import annotations

from collections.abc import Iterable

from sqllocks.backends.base import Capabilities
from sqllocks.core.faults import as_error
from sqllocks.dialects.base import REFUSALS, Fault, Want
from sqllocks.errors import BackendUnavailable, LockError, LockValidationError
from sqllocks.model import Seconds
from sqllocks.naming import default_holder
from sqllocks.policy import (
    checked_holder,
    checked_key,
    checked_namespace,
    checked_owner,
    checked_ttl,
    fresh_token,
    fresh_tokens,
)

__all__ = ["Names"]


class Names:
    """The namespace and holder label of one provider."""

    def __init__(self, capabilities: Capabilities, *, namespace: str = "", holder: str | None = None) -> None:
        self._capabilities = capabilities
        self.namespace = checked_namespace(namespace)
        self._holder = checked_holder(holder) if holder is not None else None

    def inner(self, lock_key: str) -> str:
        """Return the key as rows have it; raises ``LockValidationError``."""
        return checked_key(lock_key, namespace=self.namespace)

    def inner_all(self, lock_keys: Iterable[str]) -> list[str]:
        """Return several keys as rows have them, sorted and each once; raises ``LockValidationError``."""
        if isinstance(lock_keys, str):
            raise LockValidationError(
                "lock_keys must be several keys, not one text; pass a list", details={"argument": "lock_keys"}
            )
        keys = sorted({self.inner(key) for key in lock_keys})
        if not keys:
            raise LockValidationError("lock_keys must not be empty", details={"argument": "lock_keys"})
        return keys

    def wants(self, lock_keys: Iterable[str], ttl: Seconds, owner_token: str | None) -> list[Want]:
        """Return new claims under one owner token, sorted by key."""
        owner = fresh_token() if owner_token is None else owner_token
        return [self.want(self.outer(key), ttl, owner) for key in self.inner_all(lock_keys)]

    def outer(self, key: str) -> str:
        """Return a row's key as callers know it."""
        return key[len(self.namespace) :] if self.namespace else key

    def want(self, lock_key: str, ttl: Seconds, owner_token: str | None) -> Want:
        """Return a new claim, with an attempt of its own."""
        owner, attempt = fresh_tokens()
        if owner_token is not None:
            owner = checked_owner(owner_token)
        holder = self._holder or default_holder()
        return Want(self.inner(lock_key), owner, attempt, checked_ttl(ttl), holder)

    def error(self, fault: Fault, doing: str, key: str) -> LockError:
        """Return the error for a fault met while ``doing`` something with a row's key."""
        outer = self.outer(key)
        return as_error(fault, f"{doing} {outer!r}", self._capabilities, lock_key=outer)

    def unsettled(self, fault: Fault, doing: str, key: str) -> LockError:
        """The same for a change whose outcome the caller must know to be open."""
        error = self.error(fault, doing, key)
        if isinstance(error, BackendUnavailable):
            error.details["outcome"] = "pending" if fault.kind in REFUSALS else "unknown"
        return error
