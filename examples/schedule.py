"""A nightly job that several instances trigger and one runs, and a job that the leader alone runs.

python examples/schedule.py [URL]
"""

from __future__ import annotations

import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import MetaData, create_engine
from sqlalchemy.orm import sessionmaker

from sqllocks import LockNotAcquired, SqlElector, SqlLockProvider, Term
from sqllocks.recipes.schedule import JobRunner, Slots, run_slot, schedule_slots

metadata = MetaData()
table = schedule_slots(metadata, name="example_slots")


def one_slot(url: str) -> None:
    """Trigger one planned moment from three instances, and once more when all is over."""
    engine = create_engine(url)
    metadata.drop_all(engine)
    metadata.create_all(engine)
    planned = datetime(2030, 1, 1, 3, tzinfo=UTC)
    with SqlLockProvider(engine) as locks:
        locks.create_table()
        slots = Slots(table, sessionmaker(engine))

        def trigger(instance: int) -> str:
            try:
                run = run_slot(locks, "nightly", planned, lambda: "report", slots=slots)
            except LockNotAcquired as busy:
                return f"instance {instance}: {busy}"
            return f"instance {instance}: made the {run.result} under token {run.fencing_token}"

        with ThreadPoolExecutor(3) as threads:
            answers = [*threads.map(trigger, range(3)), trigger(3)]
    metadata.drop_all(engine)
    engine.dispose()
    print("\n".join(answers))
    assert sum("made the" in answer for answer in answers) == 1


def leader_only(url: str) -> None:
    """Let two instances stand for election; the leader's job runs every tenth of a second."""
    stop, terms = threading.Event(), list[int | None]()

    def job(term: Term) -> None:
        terms.append(term.fencing_token)
        if len(terms) == 5:
            stop.set()

    def instance() -> None:
        with SqlElector(url, retry=0.2) as elector:
            JobRunner(elector, "example-jobs").every(0.1, job, immediate=True).run(stop=stop)

    with ThreadPoolExecutor(2) as threads:
        for each in [threads.submit(instance), threads.submit(instance)]:
            each.result()
    print(f"{len(terms)} runs, in terms {sorted({str(term) for term in terms})}")
    assert len(set(terms)) == 1


def main(url: str) -> None:
    """Do both."""
    one_slot(url)
    leader_only(url)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{Path(directory) / 'schedule.sqlite3'}")
