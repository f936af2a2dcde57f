"""A process that holds a lease, guards a transaction with it and writes when it is told to go on.

Arguments: the address, the form, the key, the ttl, at_most (or ``-``), the account. It prints one line
when it has guarded, reads one, writes and commits, and prints how that went.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

from sqllocks import AsyncSqlLockProvider, SqlLockProvider
from sqllocks.fencing import Guards

WRITE = text("UPDATE accounts SET balance = balance + 1 WHERE name = :name")


def say(line: str) -> None:
    """Print a line for the test."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def told_to_go_on() -> None:
    """Wait for the test's word."""
    sys.stdin.readline()


def blocking(address: str, key: str, ttl: float, at_most: float | None, name: str) -> None:
    engine = create_engine(address)
    with Session(engine) as session:
        session.execute(text("SELECT 1"))
        session.rollback()
        handle = SqlLockProvider(address).require_acquire(key, ttl=ttl)
        Guards().guard(session, handle, at_most=at_most)
        say(f"guarded {handle.fencing_token}")
        told_to_go_on()
        session.execute(WRITE, {"name": name})
        session.commit()


async def asynchronous(address: str, key: str, ttl: float, at_most: float | None, name: str) -> None:
    engine = create_async_engine(address)
    async with engine.connect() as connection:
        await connection.execute(text("SELECT 1"))
        await connection.rollback()
        handle = await AsyncSqlLockProvider(address).require_acquire(key, ttl=ttl)
        await Guards().async_guard(connection, handle, at_most=at_most)
        say(f"guarded {handle.fencing_token}")
        await asyncio.to_thread(told_to_go_on)
        await connection.execute(WRITE, {"name": name})
        await connection.commit()


def main(address: str, form: str, key: str, ttl: str, at_most: str, name: str) -> None:
    """Do what the module says."""
    arguments: tuple[Any, ...] = (address, key, float(ttl), None if at_most == "-" else float(at_most), name)
    try:
        asyncio.run(asynchronous(*arguments)) if form == "asyncio" else blocking(*arguments)
    except Exception as error:  # the driver's own too: the write is the application's
        say(f"refused {type(error).__name__}")
    else:
        say("written")


if __name__ == "__main__":
    main(*sys.argv[1:])
