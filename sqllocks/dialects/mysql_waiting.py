"""Who keeps a row locked on MySQL; MariaDB shows no locks of other sessions."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    ColumnClause,
    ColumnElement,
    FromClause,
    String,
    Table,
    Text,
    bindparam,
    column,
    func,
    literal,
    literal_column,
    select,
    table,
)

from sqllocks.dialects.base import Statement, constant

__all__ = ["locking_sessions"]


def locking_sessions(locks: Table, clock: ColumnElement[object]) -> Statement:
    """Return the statement that names the sessions that hold a record lock on a key.

    It needs the right to read ``performance_schema``.
    """
    held = _performance("data_locks", "thread_id", "object_schema", "object_name", "lock_type", "lock_data")
    thread = _performance(
        "threads",
        "thread_id",
        "processlist_id",
        "processlist_user",
        "processlist_command",
        "processlist_time",
    )
    quote = constant("''''")
    doubled = func.replace(bindparam("key", type_=Text), quote, constant("''''''"))
    since = func.timestampadd(literal_column("SECOND"), -thread.c.processlist_time, clock)
    schema = literal(locks.schema, String) if locks.schema else func.database()
    return Statement(
        "lockers",
        select(thread.c.processlist_id, thread.c.processlist_user, thread.c.processlist_command, since)
        .join_from(thread, held, held.c.thread_id == thread.c.thread_id)
        .where(
            held.c.object_schema == schema,
            held.c.object_name == literal(locks.name, String),
            held.c.lock_type == constant("'RECORD'"),
            held.c.lock_data == func.concat(quote, doubled, quote),
        )
        .distinct(),
    )


def _performance(name: str, *columns: str) -> FromClause:
    named: list[ColumnClause[Any]] = [column(each) for each in columns]
    return table(name, *named, schema="performance_schema").alias(name)
