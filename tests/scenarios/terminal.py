"""A terminal with an interactive shell in it, as a person has."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from tests.scenarios.commands import PATIENCE

PROMPT = "ready> "


class Terminal:
    """What is typed, and what came on the screen."""

    def __init__(self, master: int) -> None:
        self._master = master
        self._seen = ""

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._master, text.encode())

    def until(self, pattern: str, within: float = PATIENCE) -> re.Match[str]:
        """Wait until something stands on the screen, and forget all before its end."""
        limit = time.monotonic() + within
        while not (found := re.search(pattern, self._seen)):
            left = limit - time.monotonic()
            assert left > 0, f"no {pattern!r} on the screen, but {self._seen!r}"
            if select.select([self._master], [], [], left)[0]:
                self._seen += os.read(self._master, 65_536).decode(errors="replace")
        self._seen = self._seen[found.end() :]
        return found

    def run(self, command: str) -> None:
        """Type a command at the prompt."""
        self.until(re.escape(PROMPT))
        self.type(command + "\n")
        self.until(r"\n")  # the echo


@contextmanager
def shell(environment: Mapping[str, str]) -> Iterator[Terminal]:
    """Start an interactive shell, in which ``$SQLLOCKS`` is the command line of the library."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash: job control needs a shell that has it")
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", _TAKE_THE_TERMINAL, bash, "--norc", "--noediting", "-i"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "SQLLOCKS": f"{sys.executable} -P -m sqllocks",
            "PS1": PROMPT,
            "TERM": "xterm",
            "COLUMNS": "120",
            "LINES": "40",
            **environment,
        },
    )
    os.close(slave)
    try:
        yield Terminal(master)
    finally:
        os.close(master)  # it hangs up: the shell ends, and with it what it started
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


_TAKE_THE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
