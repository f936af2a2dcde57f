"""How a release on PostgreSQL reaches those who wait, and who keeps a row locked.

A process that waits for a key holds a shared advisory lock under the key's number on its listening
session. A release tries to take the same lock exclusively until its transaction ends: where it gets
it, nobody waits and nothing is sent. Where somebody registers just then, the registration fails until
the release is visible, so no release falls between a waiter's registration and its next look. Nobody
ever waits for such a lock, and it vanishes with the session of its holder.

Advisory locks of two numbers never meet those of one number; the first number here is the library's.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import (
    ColumnClause,
    ColumnElement,
    FromClause,
    Table,
    Text,
    and_,
    bindparam,
    case,
    cast,
    column,
    func,
    literal_column,
    select,
    table,
)

from sqllocks.dialects.base import Statement, Want, constant

__all__ = [
    "BACKEND",
    "CHANNEL",
    "EVERYBODY",
    "LISTEN",
    "locking_sessions",
    "notified",
    "register",
    "signal",
    "signals",
    "unregister",
]

CHANNEL = "sqllocks"
EVERYBODY = 0
"""The signal that every listening session waits for, for batches too large to tell keys apart."""
LISTEN = f"LISTEN {CHANNEL}"
BACKEND = "SELECT pg_catalog.pg_backend_pid()"

_CLASS = 0x73716C6C  # "sqll"
_MAX_SIGNALS = 64
"""Advisory locks that one statement may take: what the server's lock table sets aside for a transaction."""


def signal(table_name: str, key: str) -> int:
    """Return the number of a key's signal; two keys that share one only wake each other for nothing.

    The schema is left out: one session may spell the same table with it and another without.
    """
    number = zlib.crc32(f"{table_name}\0{key}".encode())
    return number - (1 << 32) if number >= 1 << 31 else number


def signals(table_name: str, wants: Sequence[Want]) -> list[int]:
    """Return the signal for each element of a batch that may free its key."""
    if len(wants) > _MAX_SIGNALS:
        return [EVERYBODY] * len(wants)
    return [signal(table_name, want.key) for want in wants]


def notified(freed: ColumnElement[bool], number: ColumnElement[int]) -> ColumnElement[str]:
    """Send a key's signal where the key was freed and somebody waits for it."""
    nobody = func.pg_catalog.pg_try_advisory_xact_lock(literal_column(str(_CLASS)), number)
    sent = func.pg_catalog.pg_notify(constant(f"'{CHANNEL}'"), cast(number, Text))
    return case((freed & ~nobody, sent)).label("notified")


def register(numbers: Collection[int]) -> str:
    """Return the statement that registers a waiter; its rows are the signals that it got."""
    return _for_each("pg_try_advisory_lock_shared", numbers)


def unregister(numbers: Collection[int]) -> str:
    """Return the statement that takes a registration back."""
    return _for_each("pg_advisory_unlock_shared", numbers)


def _for_each(function: str, numbers: Collection[int]) -> str:
    # numbers only, so that it needs no parameters and runs on any driver as it stands
    array = ", ".join(str(number) for number in sorted(numbers))
    return (
        f"SELECT number FROM pg_catalog.unnest(ARRAY[{array}]::pg_catalog.int4[]) AS wanted (number) "  # noqa: S608
        f"WHERE pg_catalog.{function}({_CLASS}, number)"
    )


def locking_sessions(locks: Table) -> Statement:
    """Return the statement that names the sessions whose transaction has a key's row locked.

    A row's ``xmax`` is the transaction that locked it, or the number of a group of them, and each
    transaction holds a lock on its own number. Where the account may not see other sessions, their
    state is empty.
    """
    xmax: ColumnElement[Any] = column("xmax")
    wanted = locks.c.lock_key == bindparam("key", type_=Text)
    alone = select(cast(xmax, Text).label("number")).select_from(locks).where(wanted)
    member = func.pg_catalog.pg_get_multixact_members(_group(xmax)).table_valued("xid", name="member")
    grouped = select(cast(member.c.xid, Text)).select_from(locks, member).where(wanted)
    lockers = alone.union_all(grouped).subquery("lockers")
    held = _view("pg_locks", "pid", "transactionid", "granted")
    session = _view("pg_stat_activity", "pid", "application_name", "state", "xact_start")
    locking = lockers.join(held, cast(held.c.transactionid, Text) == lockers.c.number)
    return Statement(
        "lockers",
        select(session.c.pid, session.c.application_name, session.c.state, session.c.xact_start)
        .select_from(locking.join(session, session.c.pid == held.c.pid))
        .where(held.c.granted)
        .order_by(session.c.xact_start),
    )


def _group(number: ColumnElement[Any]) -> ColumnElement[Any]:
    """The number where it can be a group's, else NULL: asking for the members of another is an error."""
    database = _view("pg_database", "datname", "datminmxid")
    oldest = (
        select(func.pg_catalog.mxid_age(database.c.datminmxid))
        .where(database.c.datname == func.pg_catalog.current_database())
        .scalar_subquery()
    )
    age = func.pg_catalog.mxid_age(number)
    return case((and_(age > literal_column("0"), age <= oldest), number))


def _view(name: str, *columns: str) -> FromClause:
    named: list[ColumnClause[Any]] = [column(each) for each in columns]
    return table(name, *named, schema="pg_catalog").alias(name)
