"""What the query of a URL may say to the library; the rest of it is the driver's."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

from sqlalchemy import URL

from sqllocks.errors import LockValidationError
from sqllocks.policy import checked_retry

__all__ = ["for_elector", "for_locker", "for_provider", "heartbeat_for"]

HEARTBEAT = 5.0
"""Longest default pause between two heartbeats, in seconds."""
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ms|s|m|h)?", re.ASCII)
_UNITS = {None: 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_TIMES = {"lease": "lease", "ttl": "lease", "heartbeat": "heartbeat", "retry": "retry"}


def _taken(url: URL) -> tuple[dict[str, Any], URL]:
    """Return what the query says to the library, and the URL without it."""
    names = [name for name in ("prefix", *_TIMES) if name in url.query]
    said: dict[str, Any] = {}
    for name in names:
        value = url.query[name]
        target = _TIMES.get(name, name)
        if not isinstance(value, str) or target in said:
            raise LockValidationError(f"the URL says {target!r} more than once", details={"argument": target})
        said[target] = _seconds(name, value) if name in _TIMES else value
    return said, url.difference_update_query(names)


def _seconds(name: str, value: str) -> float:
    match = _DURATION.fullmatch(value)
    if match is None:
        raise LockValidationError(
            f"{name} in the URL must be a time such as 2s, 500ms or 2, not {value!r:.40}",
            details={"argument": name},
        )
    return float(match[1]) * _UNITS[match[2]]


def heartbeat_for(lease: Any) -> float:
    """Return the pause between two heartbeats, in seconds, where a lease alone was given."""
    seconds = lease.total_seconds() if isinstance(lease, timedelta) else lease
    if not isinstance(seconds, int | float) or not seconds > 0:
        return HEARTBEAT  # no lease at all, as its check will say
    return min(HEARTBEAT, seconds / 3)


def _merged(said: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    merged = {**said, **options}
    if "lease" in merged and "heartbeat" not in merged:
        merged["heartbeat"] = heartbeat_for(merged["lease"])
    return merged


def for_provider(url: URL, options: dict[str, Any]) -> tuple[URL, dict[str, Any]]:
    """Return the address and the arguments of a provider; raises ``LockValidationError``."""
    said, rest = _taken(url)
    prefix = {"namespace": said.pop("prefix")} if "prefix" in said else {}
    if "lease" in said:
        raise LockValidationError(
            "a ttl in the URL of a provider has no meaning, because there is no default ttl: pass ttl= to "
            "acquire or hold",
            details={"argument": "ttl"},
        )
    if said:
        raise LockValidationError(
            f"{' and '.join(said)} in the URL have a meaning for lockers and electors, not for a provider",
            details={"argument": next(iter(said))},
        )
    return rest, {**prefix, **options}


def for_locker(url: URL, options: dict[str, Any]) -> tuple[URL, dict[str, Any]]:
    """Return the same for a locker."""
    said, rest = _taken(url)
    if "retry" in said:  # one URL may serve a locker and an elector; waiters of a locker need no such number
        checked_retry(said.pop("retry"))
    return rest, _merged(said, options)


def for_elector(url: URL, options: dict[str, Any]) -> tuple[URL, dict[str, Any]]:
    """Return the same for an elector."""
    said, rest = _taken(url)
    return rest, _merged(said, options)
