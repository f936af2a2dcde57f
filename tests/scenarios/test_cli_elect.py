"""`sqllocks elect`: one leader runs its command; `sqllocks watch`: the others can be seen."""

from __future__ import annotations

import io
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from sqllocks import LockInfo, SqlElector, SqlLockProvider
from sqllocks.cli import main
from sqllocks.cli.attending import tied
from tests.conformance.polling import until
from tests.scenarios.commands import Running, alive, running
from tests.scenarios.terminal import shell
from tests.servers import fresh_database, require_server

KEY = "worker"
# tells its process id and its variables, and waits for a line
WAITS = ("sh", "-c", 'echo "$$ $SQLLOCKS_KEY $SQLLOCKS_FENCING_TOKEN"; read line; echo "$line"; exit 3')
QUICK = ("--retry", "0.2")


class Election:
    """A database, and those who stand there."""

    def __init__(self, address: str, stack: ExitStack) -> None:
        self.address = address
        self._stack = stack
        self._elector = stack.enter_context(SqlElector(address, strategy="lease"))

    def stand(self, *arguments: str) -> Running:
        """Start a candidate."""
        return self._stack.enter_context(running("elect", KEY, *QUICK, *arguments, url=self.address))

    def leader(self) -> LockInfo | None:
        """Return who leads."""
        return self._elector.leader(KEY)


@pytest.fixture(params=["sqlite", "postgresql", "mysql"])
def election(request: pytest.FixtureRequest) -> Iterator[Election]:
    """Return a database on one server of each kind in turn."""
    require_server(request.param)
    with ExitStack() as stack:
        url = stack.enter_context(fresh_database(request.param))
        with SqlLockProvider(url) as locks:
            locks.create_table()
        yield Election(url.render_as_string(hide_password=False), stack)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Election]:
    """Return a SQLite file, for what has nothing to do with the database."""
    address = f"sqlite:///{tmp_path / 'locks.db'}"
    with SqlLockProvider(address) as locks:
        locks.create_table()
    with ExitStack() as stack:
        yield Election(address, stack)


def began(candidate: Running) -> tuple[int, int]:
    """Wait until a candidate's command runs; return its process id and token."""
    pid, key, token = candidate.line().split()
    assert key == KEY
    return int(pid), int(token)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells the command on Linux only")
def test_a_killed_leader_takes_its_command_along_and_is_followed(election: Election) -> None:
    first = election.stand("--lease", "3", "--", *WAITS)
    pid, token = began(first)
    second = election.stand("--", *WAITS)
    until(lambda: "standing" in second.errors, within=60)
    info = election.leader()
    assert info is not None
    assert (info.fencing_token, info.holder.endswith(f":{first.pid}")) == (token, True)
    assert info.kind == ("lease" if "sqlite" in election.address else "session")
    first.process.kill()
    until(lambda: not alive(pid), within=10)
    _, later = began(second)
    assert later > token
    second.say("done")
    assert second.line() == "done"
    assert second.code() == 3
    assert election.leader() is None
    assert second.errors.splitlines() == [
        f"sqllocks: standing for {KEY!r}",
        f"sqllocks: leading {KEY!r} (token {later})",
    ]


@pytest.mark.parametrize("forever", [False, True])
def test_a_lost_leadership_stops_the_command(forever: bool) -> None:
    require_server("postgresql")
    with ExitStack() as stack:
        url = stack.enter_context(fresh_database("postgresql"))
        locks = stack.enter_context(SqlLockProvider(url))
        locks.create_table()
        election = Election(url.render_as_string(hide_password=False), stack)
        candidate = election.stand(*(["--forever"] if forever else []), "--lease", "3", "--", *WAITS)
        pid, token = began(candidate)
        assert locks.break_lock(f"election:{KEY}")
        until(lambda: not alive(pid), within=10)
        until(lambda: "is lost: stopping the command" in candidate.errors)
        if not forever:
            assert candidate.code() == 70
            return
        again, later = began(candidate)
        assert later > token
        candidate.process.send_signal(signal.SIGTERM)
        assert candidate.code() == 143
        assert not alive(again)
        assert election.leader() is None


def test_forever_stands_again_until_a_signal(file: Election) -> None:
    script = 'echo "$$ $SQLLOCKS_KEY $SQLLOCKS_FENCING_TOKEN"; exit 1'
    candidate = file.stand("--forever", "--quiet", "--", "sh", "-c", script)
    tokens = [began(candidate)[1] for _ in range(3)]
    assert tokens == sorted(set(tokens))
    candidate.process.send_signal(signal.SIGINT)
    # while standing, or while the command runs that gets it too
    assert candidate.code() in {130, 1}
    assert candidate.errors == ""


def test_a_candidate_ends_by_a_signal_and_leaves_nothing(file: Election) -> None:
    with SqlLockProvider(file.address) as locks, locks.hold(f"election:{KEY}", ttl=60):
        candidate = file.stand("--", "echo", "started")
        until(lambda: "standing" in candidate.errors, within=60)
        candidate.process.send_signal(signal.SIGTERM)
        assert candidate.code() == 143
        assert candidate.output() == ""
        assert locks.locked(f"election:{KEY}")
    assert file.leader() is None


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--", "no-such-command"], 127),
        (["--", __file__], 126),
        (["--", ""], 64),
        ([], 64),
        (["--lease", "10", "--heartbeat", "5", "--", "true"], 64),
        (["--lease", "0", "--", "true"], 64),
        (["--retry", "0", "--", "true"], 64),
        (["--strategy", "none", "--", "true"], 64),
        (["--table", "nowhere", "--", "true"], 69),
        (["--strategy", "session", "--", "true"], 69),
        (["--url", "nosuchscheme://", "--", "true"], 69),
        (["--prefix", "x" * 255, "--", "true"], 64),
    ],
)
def test_what_cannot_be_is_told_at_once(
    file: Election, arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    where = [] if "--url" in arguments else ["--url", file.address]
    assert main(["elect", KEY, *where, *arguments]) == code
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.replace(f"sqllocks: standing for {KEY!r}\n", "")


def test_the_command_starts_with_the_signals_of_a_fresh_process() -> None:
    # Python ignores SIGPIPE: a command that inherited that would write on for ever
    if sys.platform != "linux":
        pytest.skip("nothing stands between on other systems")
    import subprocess

    command = tied(["sh", "-c", "yes | head -1; grep SigIgn /proc/self/status"])
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert said[0] == "y"
    assert int(said[-1], 16) & (1 << (signal.SIGPIPE - 1)) == 0


# -- watching


def test_watch_tells_of_each_change(file: Election) -> None:
    with SqlLockProvider(file.address, holder="somebody") as locks:
        held = locks.acquire("a:1", ttl=60)
        locks.acquire("b:1", ttl=60)
        with running("watch", "--json", "--interval", "0.1", "--prefix", "a:", url=file.address) as command:
            first = json.loads(command.line())
            assert (first["lock_key"], first["held"], first["holder"]) == ("a:1", True, "somebody")
            locks.extend("a:1", owner_token=held.owner_token, ttl=50)
            assert locks.release("a:1", owner_token=held.owner_token)
            second = json.loads(command.line())
            assert (second["lock_key"], second["held"]) == ("a:1", False)
            token = locks.acquire("a:2", ttl=60).fencing_token
            assert json.loads(command.line())["fencing_token"] == token
            command.process.send_signal(signal.SIGINT)
            assert command.code() == 130
    assert command.errors == ""


def test_watch_on_a_terminal_shows_a_list(file: Election) -> None:
    somebody, screen = SqlLockProvider(file.address, holder="somebody"), shell({"SQLLOCKS_URL": file.address})
    with somebody as locks, screen as terminal:
        terminal.run("$SQLLOCKS watch --interval 0.1")
        terminal.until("0 held")
        held = locks.acquire("the-key", ttl=60)
        terminal.until(f"1 held(?s:.)*the-key(?s:.)*somebody(?s:.)*{held.fencing_token}")
        assert locks.release("the-key", owner_token=held.owner_token)
        terminal.until("0 held")
        terminal.type("\x03")
        terminal.until("ready> ")


def test_watch_of_no_database(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert main(["watch", "--url", "postgresql://me:topsecret@127.0.0.1:1/db"]) == 69
    assert main(["watch", "--interval", "0"]) == 64
    output = capsys.readouterr()
    assert "topsecret" not in output.out + output.err
