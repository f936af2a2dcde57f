"""`sqllocks demo`: right on every database, honest about failure, and nothing is left of it."""

from __future__ import annotations

import re
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import URL, create_engine, inspect

from sqllocks import SqlLockProvider
from sqllocks.cli import main
from sqllocks.cli.demo import crew
from sqllocks.cli.processes import descendants, living
from tests.conformance.polling import until
from tests.scenarios.commands import Running, alive, running
from tests.scenarios.terminal import shell
from tests.servers import DRIVERS, fresh_database, require_server, url_for

SHORT = ("--seconds", "6")


@pytest.fixture(params=["sqlite", "postgresql", "mysql", "mariadb"])
def database(request: pytest.FixtureRequest) -> Iterator[URL]:
    """Return an empty database on each server in turn."""
    require_server(request.param)
    with fresh_database(request.param) as url:
        yield url


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory for temporary files, which has to be empty at the end."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def tables(url: URL) -> list[str]:
    """Return the names of the tables."""
    drivers = {scheme: driver for driver, scheme in reversed(DRIVERS.items())}
    engine = create_engine(url_for(url, drivers[url.get_backend_name()]))
    try:
        return inspect(engine).get_table_names()
    finally:
        engine.dispose()


def address(url: URL) -> str:
    return url.render_as_string(hide_password=False)


def check_nothing_is_left(url: URL) -> None:
    """Only the lock table remains, and no key in it."""
    assert tables(url) == ["core_locks"]
    with SqlLockProvider(url) as locks:
        assert locks.list_locks() == []


def workers_of(demo: Running) -> list[int]:
    """Return the processes that a demo has started."""
    return [process.pid for process in descendants(demo.pid, living()) if process.pid != demo.pid]


def begun(demo: Running) -> list[int]:
    """Wait until the first worker holds the key; return all workers."""
    while "holds the key" not in demo.line():
        pass
    found = workers_of(demo)
    assert len(found) == 4
    return found


def test_it_works_on_every_database_and_leaves_nothing(database: URL) -> None:
    with running("demo", *SHORT, url=address(database)) as demo:
        output = demo.output()
        assert demo.code() == 0, output + demo.errors
    counts = dict(re.findall(r"^([a-z ]+): (\d+)$", output, re.MULTILINE))
    assert int(counts.pop("grants")) >= 2
    # on a busy machine a slow holder may be refused as well
    assert int(counts.pop("stale writes refused")) >= 1
    assert counts == {"overlaps": "0", "kills": "1", "freezes": "1"}
    assert "secret" not in output + demo.errors
    check_nothing_is_left(database)


def test_it_needs_nothing_prepared(temporary: Path) -> None:
    with running("demo", *SHORT, "--workers", "2") as demo:
        assert demo.code() == 0, demo.output() + demo.errors
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_interrupted_it_leaves_nothing(tmp_path: Path, name: str, code: int) -> None:
    url = URL.create("sqlite", database=str(tmp_path / "demo.sqlite3"))
    with running("demo", url=address(url)) as demo:
        workers = begun(demo)
        demo.process.send_signal(getattr(signal, name))
        assert demo.code() == code
        assert not any(map(alive, workers))
    check_nothing_is_left(url)


def test_killed_it_takes_its_workers_along(temporary: Path) -> None:
    with running("demo") as demo:
        workers = begun(demo)
        demo.process.kill()
        until(lambda: not any(map(alive, workers)), within=20)


def test_its_check_can_fail(
    temporary: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(crew, "MODULE", "tests.scenarios.careless_worker")
    monkeypatch.delenv("SQLLOCKS_URL", raising=False)
    assert main(["demo", *SHORT]) == 1
    output = capfd.readouterr().out
    counts = dict(re.findall(r"^([a-z ]+): (\d+)$", output, re.MULTILINE))
    assert int(counts["overlaps"]) > 0
    assert "NOT as promised" in output
    assert list(temporary.iterdir()) == []


def test_on_a_terminal_it_is_a_table_that_ctrl_c_ends(temporary: Path) -> None:
    with shell({}) as terminal:
        terminal.run("$SQLLOCKS demo; echo exit $?")
        terminal.until("holding")
        terminal.until("s to go")
        terminal.type("\x03")
        terminal.until("nothing is left behind")
        terminal.until(r"exit 130\r?\n")
    assert list(temporary.iterdir()) == []


def test_a_database_that_is_down() -> None:
    with running("demo", url="postgresql://app:topsecret@127.0.0.1:1/app") as demo:
        assert demo.code() == 69
        assert "cannot connect" in demo.errors
        assert "topsecret" not in demo.errors
