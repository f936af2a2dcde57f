"""What keeps ``alembic revision --autogenerate`` of an application away from the lock table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqllocks.alembic.locations import VERSION_TABLE
from sqllocks.schema import TABLE_NAME

__all__ = ["without_core_locks"]

IncludeObject = Callable[[Any, str | None, Any, bool, Any], bool]


def without_core_locks(
    include_object: IncludeObject | None = None, *, table: str = TABLE_NAME, schema: str | None = None
) -> IncludeObject:
    """Return an ``include_object`` for ``context.configure`` that leaves the lock table out.

    Out stays the table in which the library's own history is noted as well. Everything else is asked of
    ``include_object``, where one is passed.
    """
    names = {table, VERSION_TABLE}

    def include(item: Any, name: str | None, kind: Any, reflected: bool, compare_to: Any) -> bool:
        if kind == "table" and name in names and item.schema == schema:
            return False
        return include_object is None or include_object(item, name, kind, reflected, compare_to)

    return include
