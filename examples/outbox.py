"""Messages that are sent if and only if the transaction that causes them is committed.

    python examples/outbox.py [URL]

Orders and their messages are stored together; one order is rolled back. Three dispatchers run at once: each
message is delivered by one of them. A receiver that is away at first, on purpose, gets its message in a later
run; what it raised is logged.
"""

from __future__ import annotations

import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sqlalchemy import MetaData, create_engine
from sqlalchemy.orm import sessionmaker

from sqllocks import SqlLockProvider
from sqllocks.recipes.outbox import Dispatched, Message, Outbox, outbox_table

metadata = MetaData()
table = outbox_table(metadata, name="example_outbox")
delivered: list[str] = []


def send(message: Message) -> None:
    """Deliver a message; the receiver of the first one is away at first."""
    if message.payload["order"] == 1 and message.attempt == 1:
        raise ConnectionError("the receiver is away")
    delivered.append(message.idempotency_key)


def main(url: str) -> None:
    """Store, roll back, dispatch."""
    engine = create_engine(url)
    sessions = sessionmaker(engine)
    metadata.drop_all(engine)
    metadata.create_all(engine)
    with SqlLockProvider(engine) as locks:
        locks.create_table()
        outbox = Outbox(locks, table, sessions)
        for order in range(6):
            with sessions() as session:
                outbox.add(session, "order.paid", {"order": order}, idempotency_key=f"order-{order}")
                if order != 3:
                    session.commit()

        def run(_number: int) -> Dispatched:
            return outbox.dispatch(send)

        print("the first delivery of order-1 fails on purpose: its error is logged, a later run delivers it")
        with ThreadPoolExecutor(3) as threads:
            for done in threads.map(run, range(3)):
                print(done)
        while (done := outbox.dispatch(send)).claimed:
            print(done)
    metadata.drop_all(engine)
    engine.dispose()
    print("delivered:", ", ".join(delivered))
    assert sorted(delivered) == [f"order-{order}" for order in (0, 1, 2, 4, 5)]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{Path(directory) / 'outbox.sqlite3'}")
