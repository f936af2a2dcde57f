"""How a batch reaches PostgreSQL: arrays side by side, or the plain parameters of a single element."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from sqlalchemy import (
    ARRAY,
    CTE,
    BigInteger,
    ColumnElement,
    Integer,
    Text,
    and_,
    bindparam,
    cast,
    column,
    func,
    literal_column,
    select,
)

from sqllocks.dialects.base import Want

__all__ = ["ELEMENTS", "PARTS", "Part", "wanted"]

Part = tuple[str, str, Any]
"""The name of a parameter, that of its column, and the type of its elements."""


PARTS: Sequence[Part] = (
    ("keys", "k", Text),
    ("owners", "o", Text),
    ("attempts", "a", Text),
    ("ttls", "t", BigInteger),
    ("holders", "h", Text),
    ("signals", "s", Integer),
)
ELEMENTS: Mapping[str, Callable[[Want], Any]] = {
    "keys": attrgetter("key"),
    "owners": attrgetter("owner"),
    "attempts": attrgetter("attempt"),
    "ttls": attrgetter("ttl"),
    "holders": attrgetter("holder"),
    "names": attrgetter("name"),
    "server_locks": attrgetter("server_lock"),
}


def wanted(parts: Sequence[Part], *, single: bool, **settings: str) -> CTE:
    """Return the elements of a batch as rows, read after ``settings`` were made for this statement only."""
    if single:
        want = select(*(cast(bindparam(name, type_=kind), kind).label(to) for name, to, kind in parts))
    else:
        arrays = [cast(bindparam(name, type_=ARRAY(kind)), ARRAY(kind)) for name, _, kind in parts]
        values = (column(letter, kind) for _, letter, kind in parts)
        given = func.unnest(*arrays).table_valued(*values).render_derived(name="given")
        want = select(given)
    if settings:
        made = select(*(_local_setting(name, value) for name, value in settings.items()))
        # a CTE that nothing reads is not run
        applied = made.cte("settings").prefix_with("MATERIALIZED")
        read = and_(*(setting.is_not(None) for setting in applied.c))
        want = want.select_from(applied).where(read) if single else want.join(applied, read)
    return want.cte("want")


def _local_setting(name: str, value: str) -> ColumnElement[str]:
    call = f"set_config('{name}', '{value}', true)"
    setting: ColumnElement[str] = literal_column(call, Text)
    return setting.label(name)
