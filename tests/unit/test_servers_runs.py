"""Whole runs with servers: the command, pytest and its workers, and runs that are killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import guardian, require_server, variable
from tests.servers.clients import NotYet, execute
from tests.servers.waiting import gone, wait_until

REPOSITORY = Path(__file__).resolve().parents[2]
LOCAL = ("binaries", "wheel", "apt")


def environment_of_nothing_shared() -> dict[str, str]:
    """Return the environment without what a run of these tests puts there."""
    return {name: os.environ[name] for name in os.environ if not name.startswith(("SQLLOCKS_", "PYTEST_"))}


@contextlib.contextmanager
def child(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run Python in the repository with these arguments; kill it at the end."""
    popen = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=REPOSITORY,
        env=environment_of_nothing_shared(),
        stdout=subprocess.PIPE,
        text=True,
    )
    with popen:
        try:
            yield popen
        finally:
            popen.kill()


@pytest.mark.parametrize("frozen", [False, True])
def test_a_killed_run_leaves_nothing(frozen: bool) -> None:
    require_server("postgresql")
    script = (
        "import signal\n"
        "from tests.servers import launch\n"
        "from tests.servers.process import children\n"
        f"server = launch('postgresql', sources={LOCAL!r})\n"
        "backend = [int(pid) for pid in children(server.pid)][0]\n"
        f"server.freeze() if {frozen} else None\n"
        "print(server.pid, backend, server.directory, flush=True)\n"
        "signal.pause()\n"
    )
    with child("-c", script) as run:
        assert run.stdout is not None
        pid, backend, directory = run.stdout.readline().split()
        assert not gone(int(pid))
        run.send_signal(signal.SIGKILL)
        run.wait()
        assert wait_until(lambda: gone(int(pid)) and gone(int(backend)) and not Path(directory).exists())


def test_the_guardian_leaves_a_later_process_of_the_same_pid_alone() -> None:
    with child("-c", "import signal; signal.pause()") as other:
        guardian.end({other.pid: ("an earlier moment", signal.SIGKILL)})
        assert other.poll() is None


def test_the_command_exports_urls_until_it_is_ended() -> None:
    with child("-m", "tests.servers", "up", "sqlite") as run:
        assert run.stdout is not None
        word, _, url = run.stdout.readline().strip().partition("=")
        assert word == f"export {variable('sqlite')}"
        directory = Path(url.removeprefix("sqlite:///")).parent
        assert directory.exists()
        run.terminate()
        assert run.wait(15) == 0
        assert not directory.exists()


ONE_TEST = (
    "from tests.servers import require_server\n\n"
    "def test_one():\n    assert require_server('postgresql').startswith('postgresql://')\n"
)


def run_pytest(
    directory: Path, *arguments: str, text: str = ONE_TEST, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run pytest with the suite's conftest on a file, by default one that needs a PostgreSQL."""
    test = directory / "test_one.py"
    test.write_text(text)
    own = [name for name in os.environ if not name.startswith(("SQLLOCKS_", "PYTEST_"))]
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "tests.conftest",
            "-c",
            "pyproject.toml",
            *arguments,
            str(test),
        ],
        cwd=REPOSITORY,
        env={name: os.environ[name] for name in own} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_required_server_that_is_missing_fails_the_run(tmp_path: Path) -> None:
    done = run_pytest(
        tmp_path,
        SQLLOCKS_SERVERS="postgresql",
        SQLLOCKS_SERVER_SOURCES="nowhere",
        SQLLOCKS_REQUIRE="postgresql,sqlite",
    )
    assert done.returncode == 1
    assert "postgresql: no source is allowed" in done.stderr
    assert "sqlite:" not in done.stderr


def test_a_missing_server_skips_with_the_reason(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, SQLLOCKS_SERVERS="postgresql", SQLLOCKS_SERVER_SOURCES="nowhere")
    assert done.returncode == 0, done.stdout
    assert "postgresql: missing: no source is allowed" in done.stdout
    assert "no postgresql: no source is allowed" in done.stdout


TWO_TESTS = """
import os
import pytest

@pytest.mark.parametrize("number", range(2))
def test_standby(number, standby, own_server):
    with open(os.environ["TOLD"], "a") as file:
        file.write(f"{os.environ['PYTEST_XDIST_WORKER']} {standby.standby}\\n")
    server = own_server("postgresql")
    assert server.pid
    (server.freeze, server.kill)[number]()

def test_galera(galera):
    pass
"""


def test_what_is_started_on_demand_is_one_for_all_workers_and_ends_with_the_run(tmp_path: Path) -> None:
    told = tmp_path / "told"
    environment = {variable("postgresql"): require_server("postgresql"), "TOLD": str(told)}
    done = run_pytest(tmp_path, "--no-servers", "-n", "2", "--dist=each", text=TWO_TESTS, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "standby: on demand" in done.stdout
    # each worker has its own server, which it finds running again after each test
    assert "4 passed, 2 skipped" in done.stdout
    assert "no galera: this run has no mariadb" in done.stdout
    workers, urls = zip(*(line.split() for line in told.read_text().splitlines()), strict=True)
    assert (len(workers), len(set(workers)), len(set(urls))) == (4, 2, 1)
    with pytest.raises(NotYet):
        execute(urls[0], "SELECT 1")


def test_what_is_required_fails_where_it_cannot_be_started(tmp_path: Path) -> None:
    environment = {
        variable("postgresql"): require_server("postgresql"),
        "SQLLOCKS_SERVER_SOURCES": "nowhere",
        "SQLLOCKS_REQUIRE": "standby",
    }
    text = "def test_one(standby): pass\n"
    done = run_pytest(tmp_path, "--no-servers", text=text, **environment)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "no standby: no source is allowed" in done.stdout


@pytest.mark.parametrize("arguments", [(), ("-n", "2")])
def test_workers_use_the_servers_of_the_run(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    environment = {variable("postgresql"): require_server("postgresql")}
    done = run_pytest(tmp_path, "--no-servers", *arguments, SQLLOCKS_REQUIRE="postgresql", **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    assert "(env)" in done.stdout
