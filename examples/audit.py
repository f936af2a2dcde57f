"""An audit log that nobody can change unseen, and that does not fork.

    python examples/audit.py [URL]

Eight threads append for one tenant, each in a transaction of its own, some of which roll back. The chain is
in order. Then somebody changes one row by hand, and the verifier says which.
"""

from __future__ import annotations

import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sqlalchemy import MetaData, create_engine, update
from sqlalchemy.orm import Session, sessionmaker

from sqllocks import SqlLockProvider
from sqllocks.recipes.audit import AuditChain, audit_chain

metadata = MetaData()
table = audit_chain(metadata, name="example_audit")


def main(url: str) -> None:
    """Append, verify, forge, verify."""
    engine = create_engine(url)
    sessions = sessionmaker(engine)
    metadata.drop_all(engine)
    metadata.create_all(engine)
    with SqlLockProvider(engine) as locks:
        locks.create_table()
        audit = AuditChain(locks, table, wait=30)

        def unit_of_work(number: int) -> None:
            with sessions() as session:
                audit.append(session, {"action": "paid", "invoice": number}, tenant="acme")
                if number % 4:
                    session.commit()

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(unit_of_work, range(16)))
        with sessions.begin() as session:
            found = audit.verify(session, tenant="acme")
            print(f"{found.entries} entries, in order: {bool(found)}")
            forge(session)
            broken = audit.verify(session, tenant="acme").broken
            print(f"after a change by hand: {broken}")
    metadata.drop_all(engine)
    engine.dispose()
    assert found.entries == 12
    assert broken is not None
    assert broken.sequence == 5


def forge(session: Session) -> None:
    """Change a row, as somebody with access to the database might."""
    session.execute(update(table).where(table.c.sequence == 5).values(record='{"action":"gift"}'))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{Path(directory) / 'audit.sqlite3'}")
