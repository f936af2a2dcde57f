"""What to do when a lease is lost in the middle of work outside the database: compensate.

    python examples/compensate.py [URL]

A worker reserves rooms at another company, which no guard can refuse. When its lease is lost (here: an
operator breaks it), `on_lost` stops it at the next step, and it gives back what it had reserved.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from pathlib import Path

from sqllocks import LeaseLost, SqlLockProvider

reserved: list[str] = []


def reserve(room: str) -> str:
    """Reserve a room at another company."""
    reserved.append(room)
    return room


def give_back(room: str) -> None:
    """Undo it; doing it twice does no harm."""
    if room in reserved:
        reserved.remove(room)


def book(locks: SqlLockProvider, rooms: list[str], half_done: threading.Event) -> None:
    """Reserve all rooms or none."""
    lost = threading.Event()
    done: list[str] = []
    try:
        with locks.hold("trip:17", ttl=2) as lease:
            lease.on_lost(lost.set)  # called from the keeper's thread: set a flag, wake somebody, no more
            for room in rooms:
                lease.check()  # before each step that cannot be undone by itself
                done.append(reserve(room))
                half_done.set()
                lost.wait(3)  # the other company takes its time; a loss wakes us
            lease.check()  # the last word, before anybody is told that it worked
    except LeaseLost as error:
        for room in reversed(done):
            give_back(room)
        print(f"given back {done}: {error}")
        raise


def main(url: str) -> None:
    """Break the lease of a worker in the middle of its work."""
    half_done = threading.Event()
    failed: list[LeaseLost] = []

    def worker() -> None:
        try:
            book(locks, ["paris", "rome", "oslo"], half_done)
        except LeaseLost as error:
            failed.append(error)

    with SqlLockProvider(url) as locks:
        locks.create_table()
        thread = threading.Thread(target=worker)
        thread.start()
        half_done.wait(10)
        locks.break_lock("trip:17")
        thread.join()
    assert failed
    assert reserved == []


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{Path(directory) / 'trips.sqlite3'}")
