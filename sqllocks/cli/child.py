"""The command of ``sqllocks run`` as a child process: its start, its signals, its end."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from sqllocks.cli import exits, processes
from sqllocks.cli.processes import Process
from sqllocks.cli.signals import (
    SIGCHLD,
    SIGCONT,
    SIGINT,
    SIGKILL,
    SIGQUIT,
    SIGTERM,
    SIGTSTP,
    stop_this_process,
)
from sqllocks.runtime import clock

__all__ = ["CannotStart", "Child"]

POLL = 0.05
"""Seconds between two looks whether the processes of a stopped command have ended."""
LAST_WAIT = 5.0
"""Seconds that a killed process may take to disappear."""
_PR_SET_PDEATHSIG = 1


class CannotStart(Exception):
    """The command cannot be started; ``code`` is what a shell would exit with."""

    def __init__(self, command: str, error: OSError) -> None:
        super().__init__(f"cannot start {command!r}: {error.strerror or error}")
        self.code = exits.NOT_FOUND if isinstance(error, FileNotFoundError) else exits.CANNOT_START


class Child:
    """A running command.

    Where this process has a controlling terminal, the command shares its process group, as if the
    shell had started it: Ctrl-C, Ctrl-Z, reading the terminal and pipelines work as always, and the
    command's own children are found by their parents. Without one (cron, a service) it leads a group
    of its own, in which whatever it starts is found, unless it goes away as daemons do.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._terminal = _controlling_terminal()
        own_group = self._terminal is None and sys.platform != "win32"
        try:
            self._process = subprocess.Popen(  # noqa: S603 - running a command is what it is for
                list(command),
                env=dict(environment),
                process_group=0 if own_group else None,
                preexec_fn=_tied_to_this_process(),  # noqa: PLW1509 - there is no other thread then
            )
        except OSError as error:
            raise CannotStart(command[0], error) from error
        self._group = self._process.pid if own_group else None
        self._seen: dict[int, Process] = {}

    def code(self) -> int | None:
        """Return the exit code as a shell would tell it, or ``None`` while the command runs."""
        code = self._process.poll()
        return code if code is None or code >= 0 else exits.of_signal(-code)

    def pass_on(self, number: int) -> None:
        """Let the command have a signal that this process got."""
        if number == SIGCHLD:
            return
        if number == SIGTSTP:
            self._pause()
        elif number == SIGCONT:
            self._signal_job(number)
        elif number not in (SIGINT, SIGQUIT) or not self._shares_foreground():
            # from the keyboard these go to the whole foreground group, so the command has them
            self._signal(number)

    def stop(self, grace: float, wait: Callable[[float], object]) -> None:
        """End the command and its children: SIGTERM, and SIGKILL after ``grace`` seconds."""
        limit = clock.now() + grace
        self._signal_all(SIGTERM)
        # a stopped process takes its SIGTERM when it is continued
        self._signal_all(SIGCONT)
        while self._remains() and clock.now() < limit:
            wait(POLL)
        limit = clock.now() + LAST_WAIT
        while self._remains() and clock.now() < limit:
            self._signal_all(SIGKILL)
            wait(POLL)

    def _pause(self) -> None:
        if not self._shares_foreground():
            self._signal_job(SIGTSTP)
        stop_this_process()

    def _signal(self, number: int) -> None:
        if number:  # 0: this system has no such signal
            self._process.send_signal(number)

    def _signal_job(self, number: int) -> None:
        if self._group is None:
            self._signal(number)
        else:
            _signal_group(self._group, number)

    def _shares_foreground(self) -> bool:
        if self._terminal is None:
            return False
        with suppress(OSError):  # it was hung up
            return os.tcgetpgrp(self._terminal) == os.getpgrp()
        return False

    def _signal_all(self, number: int) -> None:
        if self._group is not None:
            _signal_group(self._group, number)
            return
        family = self._family()
        for process in family:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, number)
        if not family:
            self._signal(number)

    def _remains(self) -> bool:
        if self.code() is None or self._family():
            return True
        # without /proc, a group tells only that it has members, zombies among them
        return self._group is not None and not processes.VISIBLE and _signal_group(self._group, 0)

    def _family(self) -> list[Process]:
        """Return the processes of the command that live, also those whose parent has ended since."""
        now = processes.living()
        if self._group is not None:
            return processes.members(self._group, now)
        for process in processes.descendants(self._process.pid, now):
            self._seen[process.pid] = process
        return [process for process in now if self._is_seen(process)]

    def _is_seen(self, process: Process) -> bool:
        seen = self._seen.get(process.pid)
        return seen is not None and seen.started == process.started


def _signal_group(group: int, number: int) -> bool:
    """Signal a process group; return whether it has members."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):  # none, or on macOS zombies alone
        return False
    return True


def _controlling_terminal() -> int | None:
    if not hasattr(os, "ctermid"):
        return None
    try:
        return os.open(os.ctermid(), os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return None


def _tied_to_this_process() -> Callable[[], None] | None:
    """Return what makes the kernel send SIGTERM to the command when this process is killed (Linux)."""
    # beside other threads, Python code between fork and exec could meet a lock that nobody gives back
    if sys.platform != "linux" or threading.active_count() > 1:
        return None
    parent = os.getpid()
    try:
        prctl = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):  # a static build, or another libc
        return None

    def tie() -> None:
        prctl(_PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # it was killed before the kernel knew
            os.kill(os.getpid(), SIGTERM)

    return tie
