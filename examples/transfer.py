"""Why a lease alone is not enough, and what `guard` adds: money moves between two accounts.

    python examples/transfer.py [URL]

Two processes move money under one lock of half a second. One of them is stopped (SIGSTOP) in the middle of
a transfer, after it has read the balances; the other takes the lock over when it runs out and goes on. When
the stopped one wakes up, its balances are old, and writing them would make money out of nothing. Its lease
cannot stop it, because it does not know that it slept. `guard` can: it proves the lease inside the very
transaction that writes, and raises. The sum stays what it was.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

from sqlalchemy import Column, Engine, Integer, MetaData, String, Table, create_engine, func, select, update
from sqlalchemy.orm import Session

from sqllocks import LeaseLost, SqlLockProvider

TTL = 0.5
TOTAL = 1000
accounts = Table(
    "transfer_accounts",
    MetaData(),
    Column("name", String(20), primary_key=True),
    Column("balance", Integer, nullable=False),
)


def move(session: Session, balances: dict[str, int], amount: int) -> None:
    """Write both balances from what was read earlier, as much code does."""
    for name, change in (("ann", -amount), ("bob", amount)):
        session.execute(
            update(accounts).where(accounts.c.name == name).values(balance=balances[name] + change)
        )


def worker(url: str, amount: int, told: Connection) -> None:
    """Move money forever; say when the balances are read, and when a write was refused."""
    engine = create_engine(url)
    locks = SqlLockProvider(engine)
    while True:
        try:
            with locks.hold("transfer", ttl=TTL, wait=None) as lease:
                with Session(engine) as session:
                    balances = {row.name: row.balance for row in session.execute(select(accounts))}
                told.send("read")
                time.sleep(0.2)  # thinking: here one of the two is stopped
                with Session(engine) as session, session.begin():
                    lease.guard(session)  # stale: raises, and nothing is written
                    move(session, balances, amount)
                told.send("moved")
            time.sleep(0.1)  # let the other one have its turn
        except LeaseLost as lost:
            told.send(f"refused: {type(lost).__name__}")


def prepare(url: str) -> Engine:
    """Make both tables and the accounts."""
    engine = create_engine(url)
    with SqlLockProvider(engine) as locks:
        locks.create_table()
    accounts.metadata.drop_all(engine)
    accounts.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(
            accounts.insert(), [{"name": "ann", "balance": TOTAL}, {"name": "bob", "balance": 0}]
        )
    return engine


def until(told: Connection, start: str, seconds: float = 20) -> str:
    """Return the next message with that start, of those that come from now on."""
    while told.poll():
        told.recv()
    while told.poll(seconds):
        message: str = told.recv()
        if message.startswith(start):
            return message
    raise SystemExit(f"no {start!r} within {seconds} s")


def main(url: str) -> None:
    """Run both workers, stop one in the middle, and count the money."""
    engine = prepare(url)
    spawn = multiprocessing.get_context("spawn")
    ends = [spawn.Pipe() for _ in range(2)]
    workers = [
        spawn.Process(target=worker, args=(url, amount, theirs), daemon=True)
        for (_, theirs), amount in zip(ends, (7, 11), strict=True)
    ]
    for process in workers:
        process.start()
    (first, _), (second, _) = ends
    try:
        for told in (first, second):
            until(told, "moved")
        until(first, "read")
        os.kill(workers[0].pid or 0, signal.SIGSTOP)
        print("the first worker is stopped after it has read the balances")
        for _ in range(3):
            until(second, "moved")
        print("the second one has taken the lock over and moved money three times")
        os.kill(workers[0].pid or 0, signal.SIGCONT)
        print(f"the first one wakes up and writes: {until(first, 'refused')}")
    finally:
        for process in workers:
            process.kill()
            process.join()
    with engine.connect() as connection:
        total = connection.execute(select(func.sum(accounts.c.balance))).scalar_one()
    accounts.metadata.drop_all(engine)
    engine.dispose()
    print(f"the sum is {total}, as at the beginning: {total == TOTAL}")
    if total != TOTAL:
        raise SystemExit(1)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{Path(folder) / 'transfer.sqlite3'}")
