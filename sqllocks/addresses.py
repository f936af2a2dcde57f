"""What the query of a URL may say to the library; the rest of it is the driver's."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import URL

from sqllocks.errors import LockValidationError
from sqllocks.policy import checked_retry

__all__ = ["for_elector", "for_locker", "for_provider", "seconds_in"]

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


def seconds_in(text: str) -> float | None:
    """Return the seconds of ``2s``, ``500ms``, ``1.5m``, ``2h`` or ``2``; ``None`` for another text."""
    match = _DURATION.fullmatch(text)
    return None if match is None else float(match[1]) * _UNITS[match[2]]


def _seconds(name: str, value: str) -> float:
    seconds = seconds_in(value)
    if seconds is None:
        raise LockValidationError(
            f"{name} in the URL must be a time such as 2s, 500ms or 2, not {value!r:.40}",
            details={"argument": name},
        )
    return seconds


def for_provider(url: URL, options: dict[str, Any]) -> tuple[URL, dict[str, Any]]:
    """Return the address and the arguments of a provider; raises ``LockValidationError``."""
    said, rest = _taken(url)
    prefix = {"namespace": said.pop("prefix")} if "prefix" in said else {}
    if "lease" in said:
        name = "lease" if "lease" in url.query else "ttl"
        raise LockValidationError(
            f"a {name} in the URL of a provider has no meaning, because there is no default ttl: pass ttl= "
            "to acquire or hold",
            details={"argument": name},
        )
    if said:
        verb = "has" if len(said) == 1 else "have"
        raise LockValidationError(
            f"{' and '.join(said)} in the URL {verb} a meaning for lockers and electors, not for a provider",
            details={"argument": next(iter(said))},
        )
    return rest, {**prefix, **options}


def for_locker(url: URL, options: dict[str, Any]) -> tuple[URL, dict[str, Any]]:
    """Return the same for a locker."""
    said, rest = _taken(url)
    if "retry" in said:  # one URL may serve a locker and an elector; waiters of a locker need no such number
        checked_retry(said.pop("retry"))
    return rest, {**said, **options}


def for_elector(url: URL, options: dict[str, Any]) -> tuple[URL, dict[str, Any]]:
    """Return the same for an elector."""
    said, rest = _taken(url)
    return rest, {**said, **options}
