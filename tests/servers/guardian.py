"""Ends the servers of a test run that can no longer do so itself, as after SIGKILL.

Runs as a process of its own, outside the terminal's process group. It reads lines from the run:

    process PID STARTED SIGNAL    end this one; STARTED tells it from a later process of that pid
    directory PATH                remove this one
    done WHAT                     forget the PID or PATH

and acts when the pipe closes, which it does whatever way the run ended.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

LIMIT = 5.0


def started(pid: int) -> str:
    """Return when the process started, in the kernel's ticks; "" where that cannot be read."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    # the name, in brackets, may hold blanks
    return text.rpartition(")")[2].split()[19]


def running(pid: int, since: str) -> bool:
    """Tell whether that very process is there."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return False
    return started(pid) == since


def end(processes: dict[int, tuple[str, int]]) -> None:
    """Send each process and its group its signal, and SIGKILL after a limit."""
    for pid, (since, number) in processes.items():
        if running(pid, since):
            with contextlib.suppress(OSError):
                os.killpg(pid, number)
                os.killpg(pid, signal.SIGCONT)  # a test may have frozen it
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        if not any(running(pid, since) for pid, (since, _) in processes.items()):
            return
        time.sleep(0.02)
    for pid, (since, _) in processes.items():
        if running(pid, since):
            with contextlib.suppress(OSError):
                os.killpg(pid, signal.SIGKILL)


def remove(directories: set[str]) -> None:
    """Remove the directories, again while the last of what ran there still writes."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        for directory in directories:
            shutil.rmtree(directory, ignore_errors=True)
        if not any(Path(directory).exists() for directory in directories):
            return
        time.sleep(0.05)


def main() -> None:
    """Keep the list until the pipe closes, then end and remove what is left on it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    processes: dict[int, tuple[str, int]] = {}
    directories: set[str] = set()
    for line in sys.stdin:
        word, _, rest = line.rstrip("\n").partition(" ")
        if word == "process":
            pid, since, number_text = rest.split(" ")
            processes[int(pid)] = (since, int(number_text))
        elif word == "directory":
            directories.add(rest)
        elif rest in directories:
            directories.discard(rest)
        else:
            processes.pop(int(rest), None)
    end(processes)
    remove(directories)


if __name__ == "__main__":
    main()
