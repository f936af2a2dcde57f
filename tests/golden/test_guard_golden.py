"""What guards and fences compile to, kept as SQL files like the other statements."""

from __future__ import annotations

import os
import re
from typing import Any

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, update
from sqlalchemy.dialects.mysql import aiomysql
from sqlalchemy.dialects.postgresql import asyncpg

from sqllocks.dialects.guards import note_cluster
from sqllocks.dialects.proofs import Fence, guard_for
from sqllocks.schema import core_locks
from tests.golden.test_golden import FOLDER, dialect_of

NAMES = ["postgresql", "mysql", "mariadb", "sqlite"]
BREAKS = re.compile(r"\s+(?=(?:FROM|WHERE|FOR (?:KEY SHARE|UPDATE)|LOCK IN|RETURNING|LEFT OUTER)\b)")
GALERA = [("wsrep_on", "ON"), ("wsrep_provider", "libgalera_smm.so")]


def text_of(clause: Any, dialect: Any) -> str:
    lines = BREAKS.sub("\n", str(clause.compile(dialect=dialect)).strip()).splitlines()
    return "\n".join(line.rstrip() for line in lines) + ";\n"


def guards(dialect: Any, label: str = "") -> dict[str, str]:
    """Return each statement of a guard by its name; one that is the same as another appears once."""
    guard = guard_for(dialect, core_locks(MetaData()))
    statements = dict.fromkeys(each for each in (guard.guard, guard.bounded, guard.mark) if each is not None)
    return {each.name + label: text_of(each.clause, dialect) for each in statements}


def compiled(name: str) -> str:
    dialect = dialect_of(name)
    parts = guards(dialect)
    rows = Table("rows", MetaData(), Column("n", Integer))
    fenced = Fence(core_locks(MetaData()))("key", "owner", 1)
    parts["fenced"] = text_of(update(rows).where(fenced).values(n=1), dialect)
    if name in {"mysql", "mariadb"}:
        note_cluster(dialect, GALERA)
        parts |= guards(dialect, " in a cluster")
    return "\n".join(f"-- {title}\n{text}" for title, text in parts.items())


@pytest.mark.parametrize("name", NAMES)
def test_guards_are_as_reviewed(name: str) -> None:
    path = FOLDER / f"{name}_guard.sql"
    text = compiled(name)
    if os.environ.get("SQLLOCKS_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("name", NAMES)
def test_every_proof_locks(name: str) -> None:
    lock = {"postgresql": "FOR KEY SHARE", "sqlite": "UPDATE"}.get(
        name, "LOCK IN SHARE MODE|FOR UPDATE|UPDATE"
    )
    for statement in compiled(name).split(";\n"):
        assert not statement.strip() or re.search(lock, statement), statement


@pytest.mark.parametrize("driver", [asyncpg, aiomysql], ids=["asyncpg", "aiomysql"])
def test_guards_compile_for_asyncio_drivers(driver: Any) -> None:
    dialect = driver.dialect()
    guard = guard_for(dialect, core_locks(MetaData(), name="locks", schema="app"))
    assert "app.locks" in text_of(guard.guard.clause, dialect)
