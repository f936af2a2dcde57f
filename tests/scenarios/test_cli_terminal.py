"""The command line at a terminal: keys, job control, questions and tables."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sqllocks import SqlLockProvider
from tests.conformance.polling import until
from tests.scenarios.commands import alive
from tests.scenarios.terminal import Terminal, shell

KEY = "nightly"
# counts the signals of Ctrl-C, and ends by another one
COUNTS = """
import os, signal
count = 0
def interrupted(*_):
    global count
    count += 1
    print("interrupt", count, flush=True)
def ended(*_):
    print("counted", count, flush=True)
    os._exit(7)
signal.signal(signal.SIGINT, interrupted)
signal.signal(signal.SIGUSR1, ended)
print("pids", os.getppid(), os.getpid(), "end", flush=True)
while True:
    signal.pause()
"""
HAS_A_CHILD = "sh -c 'sleep 600 & echo pids $PPID $$ $! end; read line; echo got $line'"


@pytest.fixture
def locks(tmp_path: Path) -> Iterator[SqlLockProvider]:
    """Return a provider on the file that the terminal's commands use."""
    with SqlLockProvider(f"sqlite:///{tmp_path / 'locks.sqlite3'}", holder="somebody") as locks:
        locks.create_table()
        yield locks


@pytest.fixture
def terminal(tmp_path: Path, locks: SqlLockProvider) -> Iterator[Terminal]:
    """Return a terminal with a shell."""
    with shell({"SQLLOCKS_URL": f"sqlite:///{tmp_path / 'locks.sqlite3'}"}) as terminal:
        yield terminal


def pids(terminal: Terminal) -> list[int]:
    """Return the process ids that a command tells."""
    return [int(word) for word in terminal.until(r"pids ([\d ]+) end").group(1).split()]


def state(pid: int) -> str:
    """Return what the system says of a process."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_ctrl_c_reaches_the_command_once(terminal: Terminal, tmp_path: Path) -> None:
    script = tmp_path / "counts.py"
    script.write_text(COUNTS)
    terminal.run(f"$SQLLOCKS run {KEY} --ttl 30 -- {sys.executable} {script}; echo exit $?")
    run, _ = pids(terminal)
    terminal.type("\x03")
    terminal.until("interrupt 1")
    # passed on after whatever was passed on for Ctrl-C
    os.kill(run, signal.SIGUSR1)
    assert terminal.until(r"counted (\d+)").group(1) == "1"
    terminal.until(r"exit 7\r?\n")


def test_the_command_reads_the_terminal_and_stops_as_a_job(
    terminal: Terminal, locks: SqlLockProvider
) -> None:
    terminal.run(f"$SQLLOCKS run {KEY} --ttl 60 -- {HAS_A_CHILD}")
    everybody = pids(terminal)
    terminal.type("\x1a")
    terminal.until("Stopped")
    until(lambda: [state(pid) for pid in everybody] == ["T", "T", "T"])
    assert locks.locked(KEY)
    terminal.run("fg")
    terminal.type("hello\n")
    terminal.until("got hello")
    terminal.run("echo exit $?")
    terminal.until(r"exit 0\r?\n")
    os.kill(everybody[2], signal.SIGKILL)  # the command left it behind, as it may


def test_a_job_that_continues_too_late_is_ended(terminal: Terminal, locks: SqlLockProvider) -> None:
    terminal.run(f"$SQLLOCKS run {KEY} --ttl 1 -- {HAS_A_CHILD}")
    _, *commands = pids(terminal)
    terminal.type("\x1a")
    terminal.until("Stopped")
    until(lambda: not locks.locked(KEY), within=10)
    terminal.run("fg")
    terminal.until("is lost")
    terminal.run("echo exit $?")
    terminal.until(r"exit 70\r?\n")
    until(lambda: not any(map(alive, commands)), within=10)


def test_a_broken_lock_stops_the_command_with_its_children(
    terminal: Terminal, locks: SqlLockProvider
) -> None:
    terminal.run(f"$SQLLOCKS run {KEY} --ttl 1 -- {HAS_A_CHILD} | cat; echo exits ${{PIPESTATUS[@]}}")
    _, *commands = pids(terminal)
    assert locks.break_lock(KEY)
    # what else is in the pipeline lives
    terminal.until(r"exits 70 0\r?\n")
    until(lambda: not any(map(alive, commands)), within=10)


def test_break_asks(terminal: Terminal, locks: SqlLockProvider) -> None:
    assert locks.acquire(KEY, ttl=60)
    for answer, code in (("n", 1), ("y", 0)):
        terminal.run(f"$SQLLOCKS break {KEY}; echo exit $?")
        terminal.until(r"held by somebody since .*\[y/N\]")
        assert locks.locked(KEY)
        terminal.type(f"{answer}\n")
        terminal.until(rf"exit {code}\r?\n")
    assert not locks.locked(KEY)


def test_ls_is_a_table(terminal: Terminal, locks: SqlLockProvider) -> None:
    assert locks.acquire("[red]brackets[/red] \x1b[31m", ttl=60)
    terminal.run("$SQLLOCKS ls")
    # neither markup nor control characters of a key do anything
    terminal.until(r"key.*state.*holder")
    terminal.until(r"\[red\]brackets\[/red\] \\x1b\[31m .*held.* somebody")
