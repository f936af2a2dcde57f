"""Questions that tell what a server can do for locks, and what their answers mean."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import BigInteger, Table, delete, false, insert, literal_column, select, update

from sqllocks.diagnosis import Finding
from sqllocks.dialects.base import Fault, FaultKind, LeaseDialect, Parameters, Row, Statement
from sqllocks.schema import ByteString, init_command

__all__ = [
    "READ_ONLY",
    "Check",
    "Checks",
    "Judge",
    "Stored",
    "clock_question",
    "columns",
    "durability",
    "privileges",
    "wide_enough",
]

Judge = Callable[[Sequence[Row]], Iterable[Finding]]

READ_ONLY = "pass a URL of the primary, or lift the read-only mode"


@dataclass(frozen=True, slots=True)
class Check:
    """One question, and what its answer means."""

    statement: Statement
    judge: Judge
    parameters: Parameters = field(default_factory=dict[str, Any])
    refused: Callable[[Fault], Iterable[Finding]] | None = None
    """What it means that the server refuses to answer."""


@dataclass(frozen=True, slots=True)
class Checks:
    """All questions to one kind of server."""

    time: Statement
    """Asks for the time by the clock that decides."""
    server: Sequence[Check]
    table: Check
    number: Statement | None = None
    """Asks for the number of this very session, which a pooler in between makes another one."""
    further: Sequence[Check] = ()
    """Asked where the table is there."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One column as the server has it."""

    name: str
    type: str
    nullable: bool = False


def columns(table: Table, found: Sequence[Stored], as_wanted: Callable[[Any, str], bool]) -> list[Finding]:
    """Compare the columns with those that the library makes; ``as_wanted`` compares two types."""
    known = {column.name: column for column in found}
    name = table.fullname
    missing = [column.name for column in table.c if column.name not in known]
    if not found:
        remedy = f"create it with `{init_command(name)}`, create_table() or the Alembic revision"
        return [Finding("failure", "table", f"there is no table {name}", remedy)]
    if missing:
        text = f"the table {name} is not the library's: it lacks {', '.join(missing)}"
        return [Finding("failure", "table", text, "use another table=, or create the missing columns")]
    wrong = [
        f"{column.name} is {known[column.name].type}"
        for column in table.c
        if not as_wanted(column.type, known[column.name].type)
    ]
    if wrong:
        text = f"the table {name} has columns of other types than the library makes: {', '.join(wrong)}"
        return [Finding("failure", "table", text, "create the table anew where nothing is held")]
    return [Finding("ok", "table", f"the table {name} is there, with the columns it should have")]


def wide_enough(wanted: Any, found: str) -> bool:
    """Return whether a type such as ``varchar(255)`` holds as many characters as the library writes."""
    length = found.partition("(")[2].rstrip(")")
    return isinstance(wanted, ByteString) and length.isdecimal() and int(length) >= (wanted.length or 0)


def privileges(table: Table) -> list[Check]:
    """Return harmless statements, each of which needs one of the privileges that locks need."""
    nothing = false()
    statements = {
        "SELECT": Statement(
            "may_select", select(literal_column("1", BigInteger)).select_from(table).where(nothing)
        ),
        "INSERT": Statement(
            "may_insert",
            insert(table).from_select(list(table.c.keys()), select(*table.c).where(nothing)),
            rows=False,
        ),
        "UPDATE": Statement(
            "may_update", update(table).values(holder=table.c.holder).where(nothing), rows=False
        ),
        "DELETE": Statement("may_delete", delete(table).where(nothing), rows=False),
    }

    def check(right: str, statement: Statement) -> Check:
        def refused(fault: Fault) -> list[Finding]:
            if fault.kind is FaultKind.READ_ONLY:
                return [
                    Finding(
                        "failure", "read-only", f"the database takes no writes ({fault.message})", READ_ONLY
                    )
                ]
            text = f"the account may not {right} on {table.fullname} ({fault.message})"
            return [Finding("failure", "privileges", text, f"GRANT {right} ON {table.fullname}")]

        return Check(statement, lambda _: (), refused=refused)

    return [check(right, statement) for right, statement in statements.items()]


def clock_question(sql: LeaseDialect) -> Statement:
    """Return the question for the time by the clock that decides."""
    return Statement("time", select(sql.clock()))


def durability(settings: Mapping[str, str], safe: Mapping[str, Sequence[str]]) -> list[Finding]:
    """Tell of settings with which a crash of the server can lose what was committed."""
    return [
        Finding(
            "warning",
            "durability",
            f"{name} is {settings[name]}: a crash of the server can lose a grant that a holder was told of",
            f"set {name} to {good[0]}",
        )
        for name, good in safe.items()
        if name in settings and settings[name].lower() not in good
    ]
