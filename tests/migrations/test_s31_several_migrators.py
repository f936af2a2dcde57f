"""S31: several migrators start on an empty database; each revision is applied once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from sqllocks.alembic import MigrationResult
from tests.migrations.application import CREATE_LOG, Application, apply, apply_and_tell
from tests.scenarios.workers import Worker

on = partial(pytest.mark.parametrize, "server", indirect=True)
REVISIONS = ("r1", "r2", "r3")


def written(app: Application) -> Application:
    app.write(r1=CREATE_LOG, r2="log()\ntime.sleep(0.5)", r3="log()")
    return app


def check(app: Application, results: Sequence[MigrationResult]) -> None:
    """All succeeded, one of them did everything."""
    assert sorted(result.applied for result in results) == [()] * (len(results) - 1) + [REVISIONS]
    assert {result.to_revisions for result in results} == {("r3",)}
    assert app.heads() == ["r3"]
    assert app.logged() == list(REVISIONS)


@on(["postgresql", "mariadb", "sqlite"])
def test_six_processes(app: Application, workers: Callable[[int], list[Worker]]) -> None:
    written(app)
    begun = [worker.start(apply_and_tell, app) for worker in workers(6)]
    answers = [pending.result() for pending in begun]
    check(app, [result for _, result, _ in answers])
    # one that waits for a waiter finds nothing to do either
    holders = {f":{pid}'" for pid, _, _ in answers}
    waits = [
        (result, message)
        for _, result, messages in answers
        for message in messages
        if message.startswith("waiting")
    ]
    assert waits, "nobody waited, so this test has shown nothing"
    for result, message in waits:
        assert any(holder in message for holder in holders), message
        assert "since 2" in message
        assert result.waited > 0


@on(["postgresql", "sqlite"])
def test_six_threads_of_one_process(app: Application) -> None:
    written(app)
    with ThreadPoolExecutor(6) as threads:
        results = list(threads.map(apply, [app] * 6))
    check(app, results)


@on(["mysql"])
def test_the_function_the_command_line_and_the_environment_file(
    app: Application, workers: Callable[[int], list[Worker]]
) -> None:
    written(app)
    ini = app.ini(guarded="yes")
    [worker] = workers(1)
    pending = worker.start(apply_and_tell, app, options={"guarded": "yes"})
    runs = [
        start([sys.executable, "-m", "sqllocks", "migrate", "--config", str(ini)]),
        start([sys.executable, "-m", "alembic", "-c", str(ini), "upgrade", "heads"]),
    ]
    _, result, _ = pending.result()
    outputs = [run.communicate(timeout=60)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0], outputs
    assert result.to_revisions == ("r3",)
    assert outputs[0].strip().splitlines()[-1] in {
        "Nothing to do at r3",
        "Applied 3 revisions, now at r3: r1, r2, r3",
    }
    assert app.heads() == ["r3"]
    assert app.logged() == list(REVISIONS)


def start(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=Path(__file__).parents[2],
    )
