"""The command line without other processes: answers, exit codes, messages, and the demo's judgement."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sqllocks import BackendUnavailable, LockInfo, SqlLockProvider
from sqllocks.cli import main
from sqllocks.cli.demo.events import Event, Kind
from sqllocks.cli.demo.history import History
from sqllocks.cli.demo.ledger import Written
from sqllocks.cli.keeping import Ending, KeepingProvider, give_back, telling
from sqllocks.cli.messages import masked, printable
from sqllocks.cli.place import state_file
from sqllocks.cli.processes import Process, descendants, members
from sqllocks.cli.spans import SPAN, SpanRange
from tests.conformance.polling import until

Output = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the user's own state directory out of this; nobody is at the terminal."""
    directory = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(directory))
    monkeypatch.delenv("SQLLOCKS_URL", raising=False)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    return directory


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return the URL of a file that is not there yet."""
    return f"sqlite:///{tmp_path / 'some.sqlite3'}"


@pytest.fixture
def locks(url: str) -> Iterator[SqlLockProvider]:
    """Return a provider of that file, with the table in it."""
    with SqlLockProvider(url, holder="somebody") as locks:
        locks.create_table()
        yield locks


# -- where the locks are


def test_without_a_url_a_file_is_made_and_that_is_said_once(state: Path, capsys: Output) -> None:
    path = state / "sqllocks" / "locks.sqlite3"
    assert main(["ls"]) == 0
    assert str(path) in capsys.readouterr().err
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert main(["show", "key"]) == 1
    assert str(path) not in capsys.readouterr().err


@pytest.mark.parametrize("command", [["run", "key", "--ttl", "30s"], ["elect", "key", "--lease", "30s"]])
def test_without_a_url_each_run_is_told_that_it_excludes_nobody_elsewhere(
    command: list[str], state: Path, capsys: Output
) -> None:
    path = state / "sqllocks" / "locks.sqlite3"
    for _ in range(2):
        assert main([*command, "--", "true"]) == 0
        errors = capsys.readouterr().err
        assert f"the lock is in {path}, which excludes nobody on other machines" in errors
        assert errors.count(str(path)) == 1
    assert main([*command, "-q", "--", "true"]) == 0
    assert capsys.readouterr().err == ""


def test_quiet_is_quiet_where_the_file_is_made(capsys: Output) -> None:
    assert main(["run", "key", "--ttl", "30", "-q", "--", "true"]) == 0
    assert capsys.readouterr().err == ""


def test_a_relative_state_directory_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert state_file() == tmp_path / ".local" / "state" / "sqllocks" / "locks.sqlite3"


@pytest.mark.parametrize(
    ("platform", "directory"), [("darwin", "Library/Application Support"), ("win32", "AppData/Local")]
)
def test_the_state_directory_of_other_systems(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, platform: str, directory: str
) -> None:
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", platform)
    assert state_file() == tmp_path / directory / "sqllocks" / "locks.sqlite3"


def test_a_state_directory_that_cannot_be_made(state: Path, capsys: Output) -> None:
    state.write_text("in the way")
    assert main(["ls"]) == 69
    assert "pass --url" in capsys.readouterr().err


def test_init_says_what_it_did(url: str, capsys: Output) -> None:
    for said in ("Created core_locks in sqlite:", "Nothing to do, there is already core_locks in sqlite:"):
        assert main(["init", "--url", url]) == 0
        assert capsys.readouterr().out.startswith(said)


def test_init_of_the_users_own_file(state: Path, capsys: Output) -> None:
    assert main(["init"]) == 0
    output = capsys.readouterr()
    assert output.out == f"Created core_locks in {state / 'sqllocks' / 'locks.sqlite3'}\n"


def test_init_of_a_path_that_cannot_be_opened_names_no_key(tmp_path: Path, capsys: Output) -> None:
    assert main(["init", "--url", f"sqlite:///{tmp_path / 'missing' / 'locks.db'}"]) == 69
    errors = capsys.readouterr().err
    assert "unable to open" in errors
    assert "sqllocks init" not in errors
    assert "Whether" not in errors


def test_doctor_makes_no_file(tmp_path: Path, state: Path, capsys: Output) -> None:
    path = tmp_path / "typo.db"
    for address in (f"sqlite:///{path}", f"sqlite:///file:{path}?uri=true"):
        assert main(["doctor", "--url", address]) == 2
        assert capsys.readouterr().out.startswith(f"failure: there is no file {path}. Remedy: ")
    assert main(["doctor"]) == 2
    assert capsys.readouterr().out.startswith("failure: there is no file ")
    assert not path.exists()
    assert not state.exists()


def test_a_url_of_the_asyncio_form_is_explained_without_classes(tmp_path: Path, capsys: Output) -> None:
    for command in (["ls"], ["doctor"], ["elect", "key"], ["run", "key", "--ttl", "5"]):
        started = ["--", "true"] if "key" in command else []
        (tmp_path / "locks.db").touch()
        address = f"sqlite+aiosqlite:///{tmp_path / 'locks.db'}"
        assert main([*command, "--url", address, *started]) == 64
        errors = capsys.readouterr().err
        assert "leave the driver out of the URL (sqlite://" in errors
        assert "class" not in errors


def test_the_variable_names_the_database(
    url: str, locks: SqlLockProvider, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    monkeypatch.setenv("SQLLOCKS_URL", url)
    assert locks.acquire("key", ttl=60)
    assert main(["ls"]) == 0
    assert "somebody" in capsys.readouterr().out


def test_a_missing_table_names_the_remedy(url: str, capsys: Output) -> None:
    for command in (["ls"], ["show", "key"], ["break", "key", "--yes"]):
        assert main([*command, "--url", url]) == 69
        assert "sqllocks init" in capsys.readouterr().err


def test_table_and_namespace(url: str, capsys: Output) -> None:
    assert main(["init", "--url", url, "--table", "others"]) == 0
    with SqlLockProvider(url, table="others", namespace="billing:") as locks:
        assert locks.acquire("invoice", ttl=60)
    capsys.readouterr()
    for namespace, key in (("", "billing:invoice"), ("billing:", "invoice")):
        arguments = ["ls", "--url", url, "--table", "others", "--namespace", namespace, "--json"]
        assert main(arguments) == 0
        assert [each["lock_key"] for each in json.loads(capsys.readouterr().out)] == [key]


# -- looking


def fields(info: LockInfo | None) -> dict[str, object]:
    """Return what JSON has to say of a key."""
    assert info is not None
    assert info.acquired_at is not None
    assert info.expires_at is not None
    return {
        "lock_key": info.lock_key,
        "kind": info.kind,
        "holder": info.holder,
        "held": info.held,
        "fencing_token": info.fencing_token,
        "acquired_at": info.acquired_at.isoformat(),
        "expires_at": info.expires_at.isoformat(),
    }


def test_ls(url: str, locks: SqlLockProvider, capsys: Output) -> None:
    for key in ("a:1", "a:2", "b:1"):
        assert locks.acquire(key, ttl=60)
    assert locks.break_lock("a:2")
    for options, keys in (
        ([], ["a:1", "a:2", "b:1"]),
        (["--held"], ["a:1", "b:1"]),
        (["--prefix", "a:"], ["a:1", "a:2"]),
        (["--prefix", "a:", "--held"], ["a:1"]),
        (["--prefix", "c:"], []),
    ):
        assert main(["ls", "--url", url, *options, "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == [fields(locks.inspect(key)) for key in keys]
        assert main(["ls", "--url", url, *options]) == 0
        assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]] == keys


def test_columns_are_aligned(url: str, locks: SqlLockProvider, capsys: Output) -> None:
    for key in ("short", "a key that is much longer"):
        assert locks.acquire(key, ttl=60)
    assert main(["ls", "--url", url]) == 0
    assert {line.find("held") for line in capsys.readouterr().out.splitlines()[1:]} == {27}


def test_show(url: str, locks: SqlLockProvider, capsys: Output) -> None:
    handle = locks.acquire("key", ttl=60)
    assert main(["show", "key", "--url", url, "--json"]) == 0
    output = capsys.readouterr().out
    assert json.loads(output) == fields(locks.inspect("key"))
    assert handle.owner_token not in output
    assert main(["show", "key", "--url", url]) == 0
    assert f"fencing_token  {handle.fencing_token}\n" in capsys.readouterr().out


def test_show_of_a_key_that_was_never_used(url: str, locks: SqlLockProvider, capsys: Output) -> None:
    assert main(["show", "key", "--url", url]) == 1
    assert capsys.readouterr() == ("", "sqllocks: 'key' was never used\n")
    assert main(["show", "key", "--url", url, "--json"]) == 1
    assert capsys.readouterr().out == "null\n"


# -- intervening


def test_break(url: str, locks: SqlLockProvider, capsys: Output) -> None:
    assert locks.acquire("key", ttl=60)
    assert main(["break", "key", "--url", url]) == 64
    assert "--yes" in capsys.readouterr().err
    assert locks.locked("key")
    assert main(["break", "key", "--url", url, "--yes"]) == 0
    assert not locks.locked("key")
    assert main(["break", "key", "--url", url, "--yes"]) == 1
    assert main(["break", "never used", "--url", url, "--yes"]) == 1


def test_purge(url: str, locks: SqlLockProvider, capsys: Output) -> None:
    assert locks.acquire("held", ttl=60)
    assert main(["purge", "--idle", "3600", "--url", url]) == 0
    assert capsys.readouterr().out == "Removed 0 rows\n"
    assert locks.locked("held")
    for wrong in (["--idle", "59"], ["--idle", "nan"], ["--idle", "soon"], []):
        assert main(["purge", *wrong, "--url", url]) == 64


# -- running


def test_a_minimum_hold_outlasts_the_command(url: str, locks: SqlLockProvider, capsys: Output) -> None:
    begun = datetime.now(UTC)
    assert main(["run", "key", "--ttl", "5m", "--at-least", "60s", "--url", url, "--", "true"]) == 0
    info = locks.inspect("key")
    assert info is not None
    assert info.expires_at is not None
    # the ttl of 300 s is cut to what was asked for
    assert info.held
    assert timedelta(seconds=59) <= info.expires_at - begun < timedelta(seconds=200)
    assert main(["run", "key", "--ttl", "5m", "--skip", "--url", url, "--", "false"]) == 0
    assert main(["run", "other", "--ttl", "5m", "--at-least", "60", "--url", url, "--", "no-such-cmd"]) == 127
    assert not locks.locked("other")


@pytest.mark.parametrize(
    ("text", "seconds"), [("30", 30), ("30s", 30), ("500ms", 0.5), ("1.5m", 90), ("2h", 7200)]
)
def test_times_are_as_in_urls(text: str, seconds: float) -> None:
    assert SPAN.convert(text, None, None) == seconds
    assert SpanRange(0, 9000).convert(text, None, None) == seconds


# -- bad arguments, and what never shows


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["no-such-command"],
        ["ls", "--no-such-option"],
        ["ls", "too many"],
        ["ls", "--url", ""],
        ["ls", "--table", " "],
        ["ls", "--url", "not a url"],
        ["ls", "--prefix", "x" * 256],
        ["show"],
        ["show", ""],
        ["break", " ", "--yes"],
        ["run", "key", "--", "true"],
        ["run", "key", "--ttl", "30"],
        ["run", "key", "--ttl", "soon", "--", "true"],
        ["run", "key", "--ttl", "0.05", "--", "true"],
        ["run", "key", "--ttl", "nan", "--", "true"],
        ["run", "key", "--ttl", "30d", "--", "true"],
        ["run", "key", "--ttl", "30", "--at-least", "31", "--", "true"],
        ["run", "key", "--ttl", "30", "--at-least", "-1", "--", "true"],
        ["run", "key", "--ttl", "30", "--wait", "-1", "--", "true"],
        ["run", "key", "--ttl", "30", "--skip", "--busy-exit", "1", "--", "true"],
        ["run", "key", "--ttl", "30", "--busy-exit", "256", "--", "true"],
        ["run", "key", "--ttl", "30", "--grace", "-1", "--", "true"],
        ["run", "key", "--ttl", "30", "--", ""],
        ["run", "", "--ttl", "30", "--", "true"],
        ["run", "x" * 256, "--ttl", "30", "--", "true"],
        ["demo", "--workers", "1"],
        ["demo", "--url", "not a url"],
        ["demo", "--seconds", "1"],
    ],
    ids=" ".join,
)
def test_bad_arguments(arguments: list[str], capsys: Output) -> None:
    assert main(arguments) == 64
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["demo", "-h"], ["--version"]])
def test_help(arguments: list[str], capsys: Output) -> None:
    assert main(arguments) == 0
    assert capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["ls", "postgresql://app:topsecret@db/app"],
        ["ls", "--url", "postgresql://app:topsecret@127.0.0.1:1/app"],
        ["ls", "--url", "postgresql://app:top@topsecret:x@127.0.0.1/app"],
        ["ls", "--url", "postgresql://app@127.0.0.1:1/app?password=topsecret"],
        ["ls", "--url", "no-such-database://app:topsecret@db/app"],
        ["show", "mysql://app:topsecret@db/app"],
        ["demo", "--url", "postgresql://app:topsecret:x@db:port/app"],
    ],
    ids=lambda arguments: arguments[-1],
)
def test_a_password_never_shows(arguments: list[str], capsys: Output) -> None:
    assert main(arguments) in {1, 64, 69}
    output = capsys.readouterr()
    assert "topsecret" not in output.out + output.err
    assert output.err


def test_what_is_masked_and_escaped() -> None:
    assert masked("at mysql://me:a@b:c@host/db now") == "at mysql://me:***@host/db now"
    assert masked("x://h/d?password=abc&a=1") == "x://h/d?password=***&a=1"
    assert masked("a@b, c:d@e") == "a@b, c:d@e"
    assert printable("a\x1b[31m\nü\udc80") == "a\\x1b[31m\\nü\\udc80"


def test_an_unsupported_database(capsys: Output) -> None:
    assert main(["ls", "--url", "oracle://db/app"]) == 69
    assert "postgresql" in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_without_the_extra_the_remedy_is_named(missing: str) -> None:
    # None makes the import fail as it does where the package is not installed
    program = f"import sys; sys.modules[{missing!r}] = None; from sqllocks.cli import main; sys.exit(main())"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ended = subprocess.run(
        [sys.executable, "-P", "-c", program, "ls"],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert ended.returncode == 64
    assert "pip install 'sqllocks[cli]'" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


# -- keeping a lease


def test_taking_starts_no_thread_and_keeping_renews(url: str, locks: SqlLockProvider) -> None:
    before = set(threading.enumerate())
    with KeepingProvider(url) as taking, KeepingProvider(url) as keeping:
        grant = taking.take("key", ttl=2, owner_token="me", wait=0)
        assert set(threading.enumerate()) <= before
        lease = keeping.keep(grant)
        until(lambda: lease.expires_at > grant.handle.expires_at)
        assert (lease.lost, lease.fencing_token) == (False, grant.handle.fencing_token)
        assert give_back(lease, 5, pytest.fail) is Ending.RELEASED
    assert not locks.locked("key")


def test_a_lock_that_was_broken_is_told_as_lost(url: str, locks: SqlLockProvider) -> None:
    with KeepingProvider(url) as keeping:
        lease = keeping.keep(keeping.take("key", ttl=60, owner_token="me", wait=0))
        assert locks.break_lock("key")
        assert give_back(lease, 5, pytest.fail) is Ending.LOST


def test_a_release_that_hangs_or_fails_is_told(url: str, locks: SqlLockProvider) -> None:
    answering, warnings = threading.Event(), list[str]()

    class Hanging:
        lock_key = "key"

        def release(self) -> bool:
            answering.wait()
            raise BackendUnavailable("down")

    hanging: Any = Hanging()
    assert give_back(hanging, 0.01, warnings.append) is Ending.UNKNOWN
    answering.set()
    until(lambda: len(warnings) == 2)
    assert "in 0.01 s" in warnings[0]
    assert "down" in warnings[1]


def test_what_the_library_warns_of_is_passed_on() -> None:
    warnings: list[str] = []
    logger = logging.getLogger("sqllocks")
    with telling(warnings.append):
        logger.info("not this")
        logger.warning("lock %r was lost", "key")
    logger.addHandler(handler := logging.NullHandler())
    logger.warning("nor this")
    logger.removeHandler(handler)
    assert warnings == ["lock 'key' was lost"]


# -- processes


def test_the_family_of_a_process() -> None:
    everybody = [
        Process(pid, parent, group, 0)
        for pid, parent, group in ((5, 3, 3), (3, 2, 3), (2, 1, 2), (4, 2, 2), (6, 5, 3), (7, 1, 3))
    ]
    assert [process.pid for process in descendants(3, everybody)] == [5, 3, 6]
    assert [process.pid for process in members(3, everybody)] == [5, 3, 6, 7]


# -- the judgement of the demo


def granted(worker: int, token: int, start: float, until: float) -> Event:
    """Return a grant: a holder trusts it from ``start`` to ``until``."""
    return Event(Kind.GRANTED, worker, 1000 + worker, start, token, until)


def told(kind: Kind, worker: int, token: int, at: float = 0, until: float = 0) -> Event:
    """Return something else that a worker did."""
    return Event(kind, worker, 1000 + worker, at, token, until)


def as_promised() -> list[Event]:
    """Return a history without fault: worker 1 is killed, worker 2 frozen and refused."""
    return [
        granted(1, 10, 0.0, 0.9),
        told(Kind.WROTE, 1, 10),
        granted(2, 20, 1.0, 1.9),
        told(Kind.WROTE, 2, 20),
        told(Kind.RENEWED, 2, 20, 1.3, 2.2),
        granted(3, 30, 2.3, 3.2),
        told(Kind.WROTE, 3, 30),
        told(Kind.RELEASED, 3, 30, 2.8),
        granted(4, 40, 2.9, 3.8),
        told(Kind.WROTE, 4, 40),
        told(Kind.REFUSED, 2, 20),
        told(Kind.RELEASED, 4, 40, 3.5),
    ]


def judged(
    events: list[Event],
    *,
    at_least: int = 4,
    frozen: int | None = 20,
    ledger: Written = Written(40, 4),  # noqa: B008 - frozen
    kills: int = 1,
    freezes: int = 1,
) -> list[str]:
    """Return the complaints about a history."""
    history = History()
    history.kills, history.freezes = kills, freezes
    for event in events:
        history.add(event)
    return history.complaints(at_least=at_least, frozen=frozen, ledger=ledger)


def test_a_faultless_history_has_no_complaints() -> None:
    assert judged(as_promised()) == []


def test_two_holders_at_once_are_noticed() -> None:
    early = granted(5, 25, 2.1, 3.0)  # worker 2 trusts its lease until 2.2
    history = History()
    for event in (*as_promised(), early):
        history.add(event)
    # with worker 2, and then workers 3 and 4 with it
    assert history.counts().overlaps == 3
    assert any("two holders" in text for text in judged([*as_promised(), early]))


def test_the_order_of_the_telling_does_not_matter() -> None:
    late = [granted(5, 25, 0.5, 0.6)]  # told last, although it was within the first
    assert any("two holders" in text for text in judged([*as_promised(), *late]))


def test_a_release_ends_the_trust() -> None:
    events = [granted(1, 1, 0, 10), told(Kind.RELEASED, 1, 1, 1.0), granted(2, 2, 1.1, 2)]
    assert not any("two holders" in text for text in judged(events))
    events[1] = told(Kind.RELEASED, 1, 1, 1.2)
    assert any("two holders" in text for text in judged(events))


def test_an_answer_that_came_too_late_was_never_trusted() -> None:
    slow = granted(5, 5, 2.5, 2.0)
    assert judged([*as_promised(), slow]) == []


@pytest.mark.parametrize("token", [20, 15, 10])
def test_tokens_that_do_not_rise_are_noticed(token: int) -> None:
    assert any("did not rise" in text for text in judged([*as_promised(), granted(5, token, 4.0, 4.9)]))


@pytest.mark.parametrize(
    ("complaint", "changed"),
    [
        ("at least 5", {"at_least": 5}),
        ("no holder was killed", {"kills": 0}),
        ("no holder was frozen", {"freezes": 0}),
        ("late write", {"frozen": None}),
        ("late write", {"frozen": 30}),
        ("ledger", {"ledger": Written(40, 3)}),
        ("ledger", {"ledger": Written(40, 6)}),
        ("ledger", {"ledger": Written(39, 4)}),
    ],
)
def test_what_else_is_noticed(complaint: str, changed: dict[str, object]) -> None:
    found = judged(as_promised(), **changed)  # type: ignore[arg-type]
    assert any(complaint in text for text in found)
