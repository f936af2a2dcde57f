"""The lock table as a value, and what may be done to one row of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sqllocks.dialects.base import Want

__all__ = ["RELEASED", "Blocked", "Pins", "Row", "Rows", "Rules", "held"]

RELEASED = "released"
"""The attempt of a row that stays taken for a while after its release."""


class Row(NamedTuple):
    """One key; instants in microseconds by the database's clock."""

    key: str
    owner: str
    attempt: str
    holder: str
    token: int
    acquired: int
    expires: int


Rows = Mapping[str, Row]
Pins = Mapping[str, str]
"""The keys whose row somebody's open transaction has locked, and how."""


class Blocked(Exception):
    """The statement waits for somebody's open transaction and is refused in the end."""


def held(row: Row | None, now: int) -> bool:
    """Tell whether a row is held; at the very moment of its expiry it is free."""
    return row is not None and row.attempt != "" and row.expires > now


class Rules:
    """What the statements of every database have in common; a mutant overrides one of them."""

    def takes(self, row: Row, now: int, *, pinned: bool) -> bool:
        """Tell whether a claim may take the row."""
        return not held(row, now) and not pinned

    def owns(self, row: Row, want: Want, now: int) -> bool:
        """Tell whether a renewal or release means this row."""
        return row.owner == want.owner and want.attempt in ("", row.attempt) and held(row, now)

    def revives(self, row: Row, want: Want, now: int) -> bool:
        """Tell whether a renewal after a guarded transaction means this row, expired or not."""
        return row.owner == want.owner and row.attempt != "" and row.attempt == want.attempt

    def old(self, row: Row, idle: int, now: int) -> bool:
        """Tell whether a purge may remove this row."""
        return not held(row, now) and row.expires <= now - idle and row.token <= now - idle

    def granted(self, row: Row | None, want: Want, now: int) -> Row:
        token = max(now, row.token + 1) if row else now
        return Row(want.key, want.owner, want.attempt, want.holder, token, now, now + want.ttl)

    def renewed(self, row: Row, want: Want, now: int) -> Row:
        return row._replace(expires=now + want.ttl)

    def released(self, row: Row, want: Want, now: int) -> Row:
        end = row.acquired + want.ttl
        if want.ttl > 0 and end > now:  # a minimum hold, which is nobody's
            return row._replace(owner=f"released:{want.attempt}", attempt=RELEASED, expires=end)
        return row._replace(attempt="", expires=now)

    def broken(self, row: Row, want: Want, now: int) -> Row:
        return row._replace(owner=want.owner, attempt="", expires=now)
