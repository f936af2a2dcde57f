"""`sqllocks run`: the command's output, signals and exit code; what a lost, busy or unreachable lock does."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from sqlalchemy import URL

from sqllocks import LockProvider, SqlLockProvider
from tests.conformance.polling import Stopwatch, until
from tests.faults import Relay
from tests.scenarios.commands import Running, alive, running
from tests.servers import fresh_database, require_server

SERVERS = ("sqlite", "postgresql", "mysql", "mariadb")
KEY = "nightly"
# tells its process ids and waits for a line
WAITS = ("sh", "-c", 'echo "$$"; read line; echo "$line"')
# the same with a child of its own that does nothing for a long time
HAS_A_CHILD = ("sh", "-c", 'sleep 600 & echo "$$"; echo "$!"; wait')


class Info(NamedTuple):
    """Who holds a key that was used before."""

    held: bool
    holder: str
    fencing_token: int | None
    expires_at: datetime


class Database:
    """A database with a lock table, and somebody who looks at it."""

    def __init__(self, url: URL, locks: LockProvider) -> None:
        self.address = url.render_as_string(hide_password=False)
        self.url = url
        self.locks = locks

    def held(self) -> bool:
        """Tell whether the key of the tests is held."""
        return self.locks.locked(KEY)

    def info(self) -> Info:
        """Return what is known of the key of the tests."""
        info = self.locks.inspect(KEY)
        assert info is not None
        assert info.expires_at is not None
        return Info(info.held, info.holder, info.fencing_token, info.expires_at)

    @contextmanager
    def run(self, *arguments: str, url: str | None = None) -> Iterator[Running]:
        """Start ``sqllocks run`` with the key of the tests."""
        with running("run", KEY, *arguments, url=url or self.address) as command:
            yield command


@contextmanager
def database_on(server: str) -> Iterator[Database]:
    """Give a database of the test's own."""
    require_server(server)
    with fresh_database(server) as url, SqlLockProvider(url) as locks:
        locks.create_table()
        yield Database(url, locks)


@pytest.fixture(params=SERVERS)
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """Return a database on each server in turn."""
    with database_on(request.param) as database:
        yield database


@pytest.fixture(params=SERVERS[1:])
def networked(request: pytest.FixtureRequest) -> Iterator[Database]:
    """Return a database on each server behind a network."""
    with database_on(request.param) as database:
        yield database


@pytest.fixture(params=SERVERS[:2])
def either(request: pytest.FixtureRequest) -> Iterator[Database]:
    """Return a file, and a server that tells of releases.

    What the command does with a busy, kept or lost lock, it does for every provider; what each database
    has to give for it is tested with the providers.
    """
    with database_on(request.param) as database:
        yield database


@pytest.fixture
def file() -> Iterator[Database]:
    """Return a SQLite file, for what has nothing to do with the database."""
    with database_on("sqlite") as database:
        yield database


# -- what every database has to give


def test_the_command_gets_its_lock_and_everything_passes_through(database: Database) -> None:
    script = 'read line; echo "$line $SQLLOCKS_KEY $SQLLOCKS_FENCING_TOKEN"; echo trouble >&2; exit 3'
    with database.run("--ttl", "30", "--", "sh", "-c", script) as command:
        command.say("hello")
        said, key, token = command.line().split()
        assert command.code() == 3
    assert (said, key, command.errors) == ("hello", KEY, "trouble\n")
    info = database.info()
    assert info[:3] == (False, f"{socket.gethostname()}:{command.pid}", int(token))


def test_a_busy_lock_is_waited_for_or_not(either: Database) -> None:
    with either.run("--ttl", "30", "--", *WAITS) as holder:
        holder.line()
        with either.run("--ttl", "30", "--", "echo", "started") as command:
            assert command.output() == ""
            assert command.code() == 75
            assert f":{holder.pid}" in command.errors
        with either.run("--ttl", "30", "--wait", "60", "--", "echo", "started") as command:
            holder.say("done")
            assert command.output() == "started\n"
            assert command.code() == 0
        assert holder.code() == 0


def test_the_lease_is_renewed_while_the_command_runs(either: Database) -> None:
    with either.run("--ttl", "3", "--", *WAITS) as command:
        command.line()
        first = either.info()

        def lasted() -> bool:
            now = either.info()
            assert now.held  # at every look
            assert now.fencing_token == first.fencing_token
            return now.expires_at - first.expires_at > timedelta(seconds=1.5)  # the second renewal

        until(lasted, within=30)
        command.say("done")
        assert (command.line(), command.code(), command.errors) == ("done", 0, "")
    assert not either.held()


def test_a_broken_lock_stops_the_command_and_its_children(either: Database) -> None:
    with either.run("--ttl", "3", "--", *HAS_A_CHILD) as command:
        pids = [int(command.line()), int(command.line())]
        assert either.locks.break_lock(KEY)
        watch = Stopwatch()
        assert command.code() == 70
        # it is seen at the next renewal, a third of the ttl later at most
        assert watch.seconds < 3
    assert "lost" in command.errors
    assert not any(map(alive, pids))


def test_a_frozen_run_stops_its_command_when_it_wakes(either: Database) -> None:
    with either.run("--ttl", "2", "--", *HAS_A_CHILD) as command:
        pids = [int(command.line()), int(command.line())]
        command.process.send_signal(signal.SIGSTOP)
        other = until(lambda: either.locks.acquire(KEY, ttl=60), within=30)
        assert all(map(alive, pids))
        command.process.send_signal(signal.SIGCONT)
        watch = Stopwatch()
        assert command.code() == 70
        assert watch.seconds < 3
        assert not any(map(alive, pids))
        # the next holder's lock was not touched
        assert either.locks.release(KEY, owner_token=other.owner_token)


def test_without_a_table_nothing_starts_until_init(database: Database) -> None:
    arguments = ("--table", "other_locks")
    with database.run("--ttl", "30", *arguments, "--", "echo", "started") as command:
        assert command.output() == ""
        assert command.code() == 69
        assert "sqllocks init" in command.errors
    with running("init", *arguments, url=database.address) as command:
        assert "other_locks" in command.output()
        assert command.code() == 0
    with database.run("--ttl", "30", *arguments, "--", "echo", "started") as command:
        assert command.output() == "started\n"
        assert command.code() == 0


# -- the network


def test_a_silent_network_stops_the_command_at_the_deadline(networked: Database) -> None:
    with Relay(networked.url) as relay:
        address = relay.address
        with networked.run("--ttl", "3", "--", *HAS_A_CHILD, url=address) as command:
            pids = [int(command.line()), int(command.line())]
            relay.fall_silent()
            watch = Stopwatch()
            until(lambda: not any(map(alive, pids)), within=10)
            # the ttl less its margin, counted from the last renewal
            assert watch.seconds < 3
            assert command.code() == 70


def test_a_renewal_that_fails_is_tried_again(networked: Database) -> None:
    with Relay(networked.url) as relay:
        address = relay.address
        with networked.run("--ttl", "6", "--", *WAITS, url=address) as command:
            command.line()
            relay.refuse()
            until(lambda: "asking again" in command.errors, within=30)
            relay.pass_on()
            before = networked.info()
            until(lambda: networked.info() != before, within=30)
            command.say("done")
            assert command.line() == "done"
            assert command.code() == 0
    warnings = command.errors.splitlines()
    assert all(line.startswith("sqllocks: warning: ") for line in warnings)
    assert "secret" not in command.errors


@pytest.mark.parametrize("driver", ["postgresql", "mysql"])
def test_a_database_that_is_down(driver: str) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # taken, and nobody listens
        url = f"{driver}://app:topsecret@127.0.0.1:{closed.getsockname()[1]}/app"
        with running("run", KEY, "--ttl", "30", "--", "echo", "started", url=url) as command:
            assert command.output() == ""
            assert command.code() == 69
            assert "cannot connect" in command.errors
            assert "topsecret" not in command.errors


# -- a busy lock


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(("--wait", "0.3"), 75), (("--skip",), 0), (("--busy-exit", "9"), 9), (("--skip", "--quiet"), 0)],
    ids=["wait", "skip", "busy-exit", "quiet"],
)
def test_a_busy_lock_starts_nothing(file: Database, arguments: tuple[str, ...], code: int) -> None:
    locks = SqlLockProvider(file.address, holder="somebody")
    with locks:
        assert locks.acquire(KEY, ttl=60)
    with file.run("--ttl", "30", *arguments, "--", "echo", "started") as command:
        assert command.output() == ""
        assert command.code() == code
    assert ("somebody" in command.errors) is ("--quiet" not in arguments)
    assert len(command.errors.splitlines()) == ("--quiet" not in arguments)


# -- signals


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2"])
def test_a_signal_reaches_the_command(file: Database, name: str) -> None:
    script = f'trap "echo {name}; exit 5" {name}; echo ready; while :; do sleep 0.05; done'
    with file.run("--ttl", "30", "--", "sh", "-c", script) as command:
        assert command.line() == "ready"
        command.process.send_signal(getattr(signal, f"SIG{name}"))
        assert command.line() == name
        assert command.code() == 5
    assert not file.held()


def test_a_command_that_a_signal_ended(file: Database) -> None:
    with file.run("--ttl", "30", "--", "sh", "-c", "kill -KILL $$") as command:
        assert command.code() == 137
    assert not file.held()


def test_a_signal_while_waiting_leaves_nothing(file: Database) -> None:
    mine = file.locks.acquire(KEY, ttl=60)
    with file.run("--ttl", "60", "--wait", "60", "--", "echo", "started") as command:
        # it has its signal handlers before it opens the database
        until(lambda: _has_open(command.pid, str(file.url.database)), within=30)
        command.process.send_signal(signal.SIGTERM)
        assert command.code() == 143
        assert command.output() == ""
    assert file.locks.release(KEY, owner_token=mine.owner_token)
    assert not file.held()


def test_what_was_ignored_stays_ignored(file: Database) -> None:
    """As under nohup: neither sqllocks nor the command ends at the terminal's hang-up."""
    script = 'kill -HUP $$; kill -HUP $PPID; echo "still here"; read line'
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with file.run("--ttl", "30", "--", "sh", "-c", script) as command:
            assert command.line() == "still here"
            command.say("done")
            assert command.code() == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_command_that_ignores_sigterm_is_killed_after_the_grace(file: Database) -> None:
    script = 'trap "echo told" TERM; echo "$$"; while :; do sleep 0.05; done'
    with file.run("--ttl", "1", "--grace", "0.5", "--", "sh", "-c", script) as command:
        pid = int(command.line())
        assert file.locks.break_lock(KEY)
        assert command.code() == 70
        assert command.line() == "told"
        assert not alive(pid)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells the command on Linux only")
@pytest.mark.parametrize(("server", "wait"), [("sqlite", 0), ("postgresql", 30)], ids=["at-once", "waited"])
def test_a_killed_run_takes_its_command_along(server: str, wait: int) -> None:
    with database_on(server) as database:
        if wait:  # it listens on PostgreSQL then
            assert database.locks.acquire(KEY, ttl=2)
        with database.run("--ttl", "1", "--wait", str(wait), "--", *WAITS) as command:
            pid = int(command.line())
            command.process.kill()
            until(lambda: not alive(pid), within=10)
            until(lambda: not database.held(), within=10)


def test_a_stopped_job_goes_on(file: Database) -> None:
    with file.run("--ttl", "30", "--", *WAITS) as command:
        pid = int(command.line())
        command.process.send_signal(signal.SIGTSTP)
        until(lambda: _state(command.pid) == _state(pid) == "T", within=10)
        command.process.send_signal(signal.SIGCONT)
        command.say("done")
        assert command.line() == "done"
        assert command.code() == 0


# -- the command


@pytest.mark.parametrize(("command", "code"), [("no-such-command", 127), (__file__, 126)])
def test_a_command_that_cannot_be_started(file: Database, command: str, code: int) -> None:
    with file.run("--ttl", "30", "--", command) as started:
        assert started.code() == code
        assert command in started.errors
    assert not file.held()


def test_arguments_of_the_command_are_its_own(file: Database) -> None:
    with file.run("--ttl", "30", "--", "printf", "%s|", "--ttl", "-x", "--", "a b", "") as command:
        assert command.output() == "--ttl|-x|--|a b||"
        assert command.code() == 0


def test_a_command_that_outlives_its_lock_unnoticed(file: Database) -> None:
    """The lock was broken after the last renewal: success would be a lie, a failure of its own is not."""
    for own, told in ((0, 70), (4, 4)):
        with file.run("--ttl", "60", "--", "sh", "-c", f"echo ready; read line; exit {own}") as command:
            command.line()
            assert file.locks.break_lock(KEY)
            command.say("end")
            assert command.code() == told


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _has_open(pid: int, path: str) -> bool:
    try:
        return any(each.resolve() == Path(path).resolve() for each in Path(f"/proc/{pid}/fd").iterdir())
    except FileNotFoundError:
        return False
