"""The calls that take a key, with arguments that are right."""

from __future__ import annotations

from typing import Any

TTL = 30.0

FIVE: dict[str, dict[str, Any]] = {
    "acquire": {"ttl": TTL},
    "require_acquire": {"ttl": TTL},
    "release": {"owner_token": "somebody"},
    "extend": {"owner_token": "somebody", "ttl": TTL},
    "locked": {},
}
ALL: dict[str, dict[str, Any]] = {**FIVE, "inspect": {}, "break_lock": {}}
