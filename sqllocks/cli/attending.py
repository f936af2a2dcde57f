"""What commands that start a command have in common: they look after it for as long as a lock is held."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqllocks.cli import exits, messages
from sqllocks.cli.child import Child
from sqllocks.cli.signals import SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, Signals
from sqllocks.lease import Held

__all__ = ["ABOUT_JOBS", "TICK", "Job", "Outcome", "attend", "cannot_start", "close", "environment", "tied"]

TICK = 1.0
"""Longest pause between two looks at the deadline: a sleeping machine stops the wait's own clock."""
CLOSED = 1.0
"""Longest wait for connections to close, in seconds."""
ABOUT_JOBS = (0, SIGCHLD, SIGCONT, SIGTSTP)
"""What ends nothing."""
_ENDING = {SIGTERM, SIGINT, SIGQUIT, SIGHUP} - {0}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended: with which exit code, and whether it was told to end, or its lock was lost."""

    code: int
    told: bool = False
    lost: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to run under which key, and how much to say about it."""

    key: str
    command: tuple[str, ...]
    grace: float
    quiet: bool

    def note(self, text: str) -> None:
        """Say something unless told to be quiet."""
        if not self.quiet:
            messages.say(text)

    def warn(self, text: str) -> None:
        """Warn unless told to be quiet."""
        if not self.quiet:
            messages.warn(text)


def attend(child: Child, held: Held, key: str, grace: float, signals: Signals) -> Outcome:
    """Wait for the command, or stop it where the lock is over."""
    told = False
    while (code := child.code()) is None:
        number = signals.wait(min(held.remaining, TICK))
        # first: after a freeze the command must not be continued with a lock that is over
        if held.lost:
            messages.say(f"the lock {key!r} is lost: stopping the command")
            child.stop(grace, signals.wait)
            return Outcome(exits.LOST, told=told, lost=True)
        if number:
            told = told or number in _ENDING
            child.pass_on(number)
    return Outcome(code, told=told)


def environment(key: str, token: int | None) -> dict[str, str]:
    """Return the variables that a command gets, those of this process among them."""
    fencing = {} if token is None else {"SQLLOCKS_FENCING_TOKEN": str(token)}
    return {**os.environ, "SQLLOCKS_KEY": key, **fencing}


def close(closing: Callable[[], object]) -> None:
    """Close something, unless a connection of it hangs in a dead network: that ends with the process."""
    thread = threading.Thread(target=closing, daemon=True)
    thread.start()
    thread.join(CLOSED)


def cannot_start(command: str) -> int | None:
    """Return a shell's exit code for a command that is not there or cannot be run, else ``None``."""
    if shutil.which(command) is not None:
        return None
    return exits.CANNOT_START if os.sep in command and Path(command).exists() else exits.NOT_FOUND


def tied(command: Sequence[str]) -> Sequence[str]:
    """Return a command line whose command gets a SIGTERM when this process is killed (Linux).

    For a process with threads: what ``Child`` does by itself between fork and exec is not safe beside them.
    """
    if sys.platform != "linux" or not sys.executable:
        return command
    return [sys.executable, "-I", "-S", "-c", _TIE, str(os.getpid()), *command]


# Python ignores these two signals, and exec would pass that on
_TIE = """
import ctypes, os, signal, sys
parent, command = int(sys.argv[1]), sys.argv[2:]
try:
    ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)
except (OSError, AttributeError):
    pass
if os.getppid() != parent:
    os.kill(os.getpid(), signal.SIGTERM)
for each in (signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(each, signal.SIG_DFL)
try:
    os.execvp(command[0], command)
except OSError as error:
    print(f"sqllocks: cannot start {command[0]!r}: {error.strerror}", file=sys.stderr)
    sys.exit(127 if isinstance(error, FileNotFoundError) else 126)
"""
