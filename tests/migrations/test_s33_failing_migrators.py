"""S33: a migrator fails, is killed or is frozen: the next one begins at once, or learns whom it waits for."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest
from sqlalchemy.exc import DBAPIError

from sqllocks import LeaseLost, LockTimeout
from sqllocks.alembic import MigrationResult
from tests.migrations.application import CREATE_LOG, TTL, Application, apply, apply_and_tell
from tests.scenarios.workers import Pending, Worker

pytestmark = pytest.mark.parametrize("server", ["postgresql", "mariadb"], indirect=True)
KEY = "migrations:apply"
PER_MIGRATION = {"per_migration": "yes"}
AT_ONCE = TTL / 2
"""Seconds: it takes less than one, but on a machine that is busy with other tests; the ttl takes more."""


def begin(
    app: Application, worker: Worker, *, ttl: float = TTL, options: dict[str, str] | None = None
) -> Pending[tuple[int, MigrationResult, list[str]]]:
    """Let a process migrate until it stands in the middle of a revision."""
    pending = worker.start(apply_and_tell, app, ttl=ttl, options=options)
    limit = time.monotonic() + 60
    while not (app.folder / "reached").exists():
        assert time.monotonic() < limit
        assert not pending.done, pending.outcome()
        time.sleep(0.01)
    return pending


@pytest.mark.parametrize(
    ("body", "kind"),
    [('raise RuntimeError("the revision raises")', RuntimeError), ('op.execute("selec 1")', DBAPIError)],
    ids=["raises", "bad-sql"],
)
def test_the_error_reaches_the_caller_and_the_next_one_begins(
    app: Application, body: str, kind: type[Exception]
) -> None:
    app.write(r1=CREATE_LOG, r2=body)
    with pytest.raises(kind):
        apply(app, options=PER_MIGRATION)
    app.write(r1=CREATE_LOG, r2="log()")
    result = apply(app, wait=0)
    assert result.applied == ("r2",)
    assert app.logged() == ["r1", "r2"]


def test_a_step_that_cannot_be_undone_is_named(app: Application) -> None:
    app.write(r1=CREATE_LOG, r2='op.execute("create table other (x int)")\nraise RuntimeError("broken")')
    with pytest.raises(RuntimeError, match="broken") as caught:
        apply(app, options=PER_MIGRATION)
    notes = getattr(caught.value, "__notes__", [])
    left = "other" in app.tables()
    assert bool(notes) == left
    assert all("revision r2 may be applied in part" in note for note in notes)


def test_a_killed_migrator_keeps_nobody_waiting(
    app: Application, workers: Callable[[int], list[Worker]]
) -> None:
    app.write(r1=CREATE_LOG, r2="log()\ngate()")
    [worker] = workers(1)
    pid = worker.run(os.getpid)
    begin(app, worker)
    os.kill(pid, signal.SIGKILL)
    app.write(r1=CREATE_LOG, r2="log()")
    began = time.monotonic()
    # its lock ends with its session, so far inside the ttl; the server undoes its open transaction first
    apply(app, wait=10)
    assert time.monotonic() - began < AT_ONCE
    assert app.logged() == ["r1", "r2"]
    assert app.heads() == ["r2"]


def test_who_waits_for_a_frozen_migrator_learns_who_it_is(
    app: Application, workers: Callable[[int], list[Worker]]
) -> None:
    app.write(r1=CREATE_LOG, r2="gate()")
    [worker] = workers(1)
    pid = worker.run(os.getpid)
    pending = begin(app, worker)
    os.kill(pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        with pytest.raises(LockTimeout) as caught:
            apply(app, wait=1)
        assert 1 <= time.monotonic() - began < 1 + AT_ONCE
    finally:
        os.kill(pid, signal.SIGCONT)
    for part in (f"{KEY!r} is not free after a wait of 1 s", f":{pid}'", "since 2", f"sqllocks break {KEY}"):
        assert part in caught.value.message
    (app.folder / "go").touch()
    pending.result()
    assert app.heads() == ["r2"]
    assert app.logged() == ["r1"]


def test_one_that_wakes_up_after_its_lock_went_to_another_writes_nothing(
    app: Application, workers: Callable[[int], list[Worker]]
) -> None:
    app.write(r1=CREATE_LOG, r2="log()\ngate()", r3="log()")
    [worker] = workers(1)
    pid = worker.run(os.getpid)
    pending = begin(app, worker, ttl=2, options=PER_MIGRATION)
    os.kill(pid, signal.SIGSTOP)
    try:
        app.write(r1=CREATE_LOG, r2="log()", r3="log()")
        assert apply(app, ttl=TTL, options=PER_MIGRATION).applied == ("r2", "r3")
    finally:
        os.kill(pid, signal.SIGCONT)
    (app.folder / "go").touch()
    assert isinstance(pending.outcome(), LeaseLost)
    assert app.logged() == ["r1", "r2", "r3"]
    assert app.heads() == ["r3"]
