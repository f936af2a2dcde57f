"""What arguments may be, and the numbers that decide how long anything is tried."""

from __future__ import annotations

import math
import secrets
from datetime import timedelta
from typing import Any

from sqllocks.errors import LockValidationError

__all__ = [
    "BUSY_PATIENCE",
    "DRAIN_PAUSE",
    "HEARTBEAT",
    "KEY_LENGTH",
    "LONGEST_RETRY",
    "MAX_TTL",
    "MIN_TTL",
    "OWNER_LENGTH",
    "PENDING_PAUSE",
    "PURGE_SLICE",
    "RELEASE_PATIENCE",
    "RENEWAL_SLICE",
    "RETRY_PAUSE",
    "SINGLE_WRITER_PATIENCE",
    "SINGLE_WRITER_PAUSE",
    "UNPINNED_PATIENCE",
    "VICTIM_PATIENCE",
    "WAIT_CEILING",
    "WAIT_FLOOR",
    "checked_at_least",
    "checked_holder",
    "checked_idle",
    "checked_key",
    "checked_lease",
    "checked_most",
    "checked_namespace",
    "checked_owner",
    "checked_pooler",
    "checked_prefix",
    "checked_retry",
    "checked_sessions",
    "checked_ttl",
    "checked_wait",
    "fresh_token",
    "fresh_tokens",
    "margin",
]

KEY_LENGTH = 255
OWNER_LENGTH = 128
HOLDER_LENGTH = 255
MIN_TTL = 0.1
MIN_IDLE = 60.0
MAX_TTL = timedelta(days=30).total_seconds()

RETRY_PAUSE = 0.01
"""Seconds between two questions about a row that somebody's open transaction has locked."""
BUSY_PATIENCE = 0.2
"""Seconds a claim asks again for a locked row before it counts as held."""
SINGLE_WRITER_PATIENCE = 0.4
"""The same on SQLite, where one transaction that writes keeps everybody from the whole file: counted from
the last time that somebody committed, because nobody stands in line for the file."""
SINGLE_WRITER_PAUSE = 0.003
"""Seconds between two tries for the file: whoever asks when it is free has it."""
VICTIM_PATIENCE = 1.5
"""Seconds a statement is sent again that was a deadlock's or a serialization's victim."""
PURGE_SLICE = 500
"""Most rows that one statement of a purge removes."""
DRAIN_PAUSE = 0.02
"""Seconds between two looks of a shutdown at whether the bodies have ended."""
PENDING_PAUSE = 0.05
"""Seconds between two tries of a release that could not be settled at once."""
RENEWAL_SLICE = 1000
"""Most leases that one statement renews."""
RELEASE_PATIENCE = 2.0
"""Seconds a release or renewal asks again for a locked row."""
LONGEST_RETRY = 600_000_000
"""Microseconds for which a release without a known ttl is tried further."""
UNPINNED_PATIENCE = 1.0
"""Seconds for which a lease past its deadline waits for the renewal that follows a guarded transaction."""


class _LeftOut(int):
    """The default that a signature shows; an equal number that somebody gave is another object."""


HEARTBEAT = _LeftOut(5)
"""Longest pause between two heartbeats where none was given, in seconds."""
WAIT_FLOOR = 0.01
"""Shortest pause of a waiter between two looks, in seconds."""
WAIT_CEILING = 0.5
"""Longest pause of a waiter between two looks, in seconds."""


def checked_key(lock_key: Any, *, namespace: str = "") -> str:
    """Return ``namespace + lock_key``, or raise ``LockValidationError``."""
    return namespace + _text("lock_key", lock_key, KEY_LENGTH, taken=len(namespace))


def checked_namespace(namespace: Any) -> str:
    """Return the namespace (``""`` for none), or raise ``LockValidationError``."""
    return namespace if namespace == "" else _text("namespace", namespace, KEY_LENGTH - 1)


def checked_prefix(prefix: Any) -> str:
    """Return the start of the keys to list (``""`` for all), or raise ``LockValidationError``."""
    return prefix if prefix == "" else _text("prefix", prefix, KEY_LENGTH)


def checked_owner(owner_token: Any) -> str:
    """Return the owner token, or raise ``LockValidationError``."""
    return _text("owner_token", owner_token, OWNER_LENGTH)


def checked_holder(holder: Any) -> str:
    """Return the label that people will read, or raise ``LockValidationError``."""
    return _text("holder", holder, HOLDER_LENGTH)


def checked_ttl(ttl: Any, *, name: str = "ttl") -> int:
    """Return the time to live in whole microseconds, or raise ``LockValidationError``."""
    plain = type(ttl) is int or type(ttl) is float
    seconds = ttl if plain and MIN_TTL <= ttl <= MAX_TTL else _seconds(name, ttl)
    if not MIN_TTL <= seconds <= MAX_TTL:
        raise LockValidationError(
            f"{name} must lie between {MIN_TTL} s and {MAX_TTL:.0f} s (30 days), not {ttl!r}",
            details={"argument": name},
        )
    return round(seconds * 1_000_000)


def checked_wait(wait: Any) -> float | None:
    """Return the longest wait in seconds, ``None`` for no limit, or raise ``LockValidationError``."""
    if wait is None:
        return None
    seconds = _seconds("wait", wait)
    if seconds < 0:
        raise LockValidationError(
            f"wait must not be negative (None waits without limit), not {wait!r}",
            details={"argument": "wait"},
        )
    return seconds


def checked_lease(lease: Any, heartbeat: Any) -> tuple[float, float]:
    """Return lease and heartbeat in seconds, or raise ``LockValidationError``.

    A heartbeat that was left out, or is ``None``, is the usual one or a third of a shorter lease.
    """
    long = checked_ttl(lease, name="lease") / 1_000_000
    if heartbeat is None or heartbeat is HEARTBEAT:
        return long, min(float(HEARTBEAT), long / 3)
    short = _seconds("heartbeat", heartbeat)
    if not 0 < short * 3 <= long:
        raise LockValidationError(
            f"heartbeat must be more than 0 and at most a third of lease, not {heartbeat!r} with a lease of "
            f"{lease!r}: two of them may be lost before the lease is",
            details={"argument": "heartbeat"},
        )
    return long, short


def checked_retry(retry: Any) -> float:
    """Return the seconds between two tries of a candidate, or raise ``LockValidationError``."""
    seconds = _seconds("retry", retry)
    if not 0 < seconds <= 3600:
        raise LockValidationError(
            f"retry must lie between 0 and 3600 s, not {retry!r}", details={"argument": "retry"}
        )
    return seconds


def checked_pooler(pooler: Any) -> str | None:
    """Return what kind of pooler is said to be there, or raise ``LockValidationError``."""
    if pooler not in (None, "session"):
        raise LockValidationError(
            f"pooler must be 'session' or None, not {pooler!r:.40}: session locks need a session that stays",
            details={"argument": "pooler"},
        )
    return None if pooler is None else "session"


def checked_sessions(sessions: Any) -> int:
    """Return how many sessions carry the locks, or raise ``LockValidationError``."""
    return _whole("sessions", sessions, 1, 100)


def checked_most(most: Any) -> int | None:
    """Return the most locks of one session, ``None`` for the server's own limit, or raise."""
    return None if most is None else _whole("max_session_locks", most, 1, 10_000_000)


def checked_at_least(at_least: Any, ttl: int) -> int:
    """Return the minimum hold in whole microseconds, or raise ``LockValidationError``."""
    seconds = _seconds("at_least", at_least)
    if not 0 <= seconds * 1_000_000 <= ttl:
        raise LockValidationError(
            f"at_least must lie between 0 and the ttl, not {at_least!r}", details={"argument": "at_least"}
        )
    return round(seconds * 1_000_000)


def margin(ttl: int) -> float:
    """Return the seconds by which a holder distrusts its lease of ``ttl`` microseconds early."""
    return min(1.0, ttl / 10_000_000)


def checked_idle(idle: Any) -> int:
    """Return the span in whole microseconds, or raise ``LockValidationError``."""
    seconds = _seconds("idle", idle)
    if not MIN_IDLE <= seconds <= 1e10:
        raise LockValidationError(
            f"idle must be at least {MIN_IDLE:g} s, not {idle!r}", details={"argument": "idle"}
        )
    return round(seconds * 1_000_000)


def fresh_token() -> str:
    """Return an unguessable text: 128 random bits in 32 hexadecimal digits."""
    return secrets.token_hex(16)


def fresh_tokens() -> tuple[str, str]:
    """Return two of them, for the price of one question to the operating system."""
    both = secrets.token_hex(32)
    return both[:32], both[32:]


def _whole(name: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise LockValidationError(
            f"{name} must be a whole number from {least} to {most}, not {value!r:.40}",
            details={"argument": name},
        )
    return value


def _seconds(name: str, value: Any) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise LockValidationError(
            f"{name} must be seconds (a number) or a timedelta, not {type(value).__name__}",
            details={"argument": name},
        )
    # an int beyond the range of float must not surface as OverflowError
    seconds = float(value) if abs(value) < 1e15 else math.inf
    if not math.isfinite(seconds):
        raise LockValidationError(f"{name} must be finite, not {value!r:.40}", details={"argument": name})
    return seconds


def _is_plain(text: str) -> bool:
    # the usual text is told by what costs least, because this is done for each call
    return text.isascii() and "\x00" not in text and not text.isspace() and text != ""


def _text(name: str, value: Any, limit: int, *, taken: int = 0) -> str:
    if isinstance(value, str) and _is_plain(value) and len(value) + taken <= limit:
        return value
    details = {"argument": name}
    if not isinstance(value, str):
        raise LockValidationError(f"{name} must be a str, not {type(value).__name__}", details=details)
    if not value.strip():
        raise LockValidationError(f"{name} must not be empty or blank", details=details)
    if "\x00" in value:
        raise LockValidationError(f"{name} must not contain a NUL character", details=details)
    if len(value) + taken > limit:
        with_namespace = f" together with the namespace ({taken} characters)" if taken else ""
        raise LockValidationError(
            f"{name} must be at most {limit} characters{with_namespace}, not {len(value) + taken}",
            details=details,
        )
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise LockValidationError(
            f"{name} must be valid Unicode text (lone surrogate)", details=details
        ) from error
    return value
