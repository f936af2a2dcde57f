"""What a claim writes where a key has no row yet, the same on every database."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Select, select
from sqlalchemy.sql.selectable import FromClause

from sqllocks.dialects.base import NOTHING, constant

__all__ = ["LEASE", "new_rows"]

Granted = tuple[ColumnElement[str], ColumnElement[str]]
LEASE: Granted = (constant("'lease'"), NOTHING)
"""The kind of a lease, and that no lock at the server goes with it."""


def new_rows(
    want: FromClause,
    granted: Granted,
    *,
    token: ColumnElement[int],
    now: ColumnElement[Any],
    expires_at: ColumnElement[Any],
) -> Select[*tuple[Any, ...]]:
    """Return a row for each element of a batch, its columns in the order of the table's."""
    kind, server_lock = granted
    return select(want.c.k, want.c.o, want.c.a, kind, want.c.h, server_lock, token, now, expires_at)
