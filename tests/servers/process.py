"""Child processes that do not outlive the test run, and ports to put them on."""

from __future__ import annotations

import atexit
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.servers import guardian
from tests.servers.accounts import Account

# Below the ephemeral range: a client that retries a closed port in that range may be given the very
# port as its own and connect to itself, which keeps the server from coming back on it.
PORTS = range(18_000, 32_000)
RUN_LIMIT = 120.0

_lock = threading.Lock()
_given: set[int] = set()


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on and that was not given out before."""
    with _lock:
        while True:
            port = random.choice(PORTS)
            if port not in _given and _unused(port):
                _given.add(port)
                return port


def _unused(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def accepts(port: int) -> bool:
    """Tell whether something listens on the port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Process:
    """One server process, in a session of its own so that Ctrl-C goes to the test run only."""

    def __init__(
        self,
        argv: Sequence[str | Path],
        *,
        account: Account | None,
        directory: Path,
        log: Path,
        programs: Path | None = None,
        end_signal: int = signal.SIGKILL,
        abandon_signal: int = signal.SIGKILL,
    ) -> None:
        self._end_signal = end_signal
        self._abandon_signal = abandon_signal
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                [str(word) for word in argv],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=directory,
                env=_environment(directory, programs),
                start_new_session=True,
                user=account.uid if account else None,
                group=account.gid if account else None,
                extra_groups=[] if account else None,
            )
        self.pid = self._popen.pid
        guard.tell(f"process {self.pid} {guardian.started(self.pid)} {int(abandon_signal)}")

        self._frozen: list[int] = []

    def running(self) -> bool:
        """Tell whether the process has not ended."""
        return self._popen.poll() is None

    def finish(self, limit: float) -> int:
        """Wait for the process to end by itself, seconds at most; return its exit code."""
        try:
            return self._popen.wait(limit)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)  # a shell script's children too
            raise
        finally:
            self.end()

    def end(self) -> None:
        """Shut down in order."""
        self._end(self._end_signal, limit=20.0)

    def abandon(self) -> None:
        """End without regard to the data."""
        self._end(self._abandon_signal, limit=5.0)

    def _end(self, number: int, limit: float) -> None:
        self.thaw()
        if self.running():
            self._signal(number)
            try:
                self._popen.wait(limit)
            except subprocess.TimeoutExpired:
                self._signal(signal.SIGKILL)
        self._popen.wait()
        guard.tell(f"done {self.pid}")

    def kill(self) -> None:
        """Kill the process and its children together, as a crash of the machine would."""
        if self.running():
            # stopped first, so that it neither starts more children nor mourns the ended ones
            self._popen.send_signal(signal.SIGSTOP)
            for child in children(self.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            self._signal(signal.SIGKILL)
        self.end()

    def _signal(self, number: int) -> None:
        if number == signal.SIGKILL:  # it cannot end its own helpers any more
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)
        self._popen.send_signal(number)

    def freeze(self, *some: int) -> None:
        """Keep the process and its children, or only these of them, from running until `thaw`.

        Raises ValueError if one that is named is no child of this process.
        """
        own = children(self.pid)
        if strangers := set(some) - set(own):
            raise ValueError(f"no process of this server: {', '.join(map(str, sorted(strangers)))}")
        # the parent first, so that it neither starts more children nor mourns these
        for pid in some or (self.pid, *own):
            if pid != self.pid:  # a stopped process hears nothing of the end of its parent
                guard.tell(f"process {pid} {guardian.started(pid)} {int(signal.SIGKILL)}")
            self._frozen.append(pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let what `freeze` stopped run again."""
        while self._frozen:
            pid = self._frozen.pop()
            # a child's id is its own for as long as its parent has not heard of its end
            if pid == self.pid or pid in children(self.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            if pid != self.pid:
                guard.tell(f"done {pid}")


def run(argv: Sequence[str | Path], *, account: Account | None, directory: Path, log: Path) -> None:
    """Run a command to its end under the account; raise SubprocessError if it fails."""
    process = Process(argv, account=account, directory=directory, log=log)
    code = process.finish(RUN_LIMIT)
    if code != 0:
        raise subprocess.CalledProcessError(code, str(argv[0]))


def children(pid: int) -> list[int]:
    """Return the ids of a process's own children."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if path.read_text().rpartition(")")[2].split()[1] == str(pid):
                found.append(int(path.parent.name))
    return found


def _environment(directory: Path, programs: Path | None) -> Mapping[str, str]:
    # no PG*, MYSQL_* of the developer; the messages stay English
    path = os.environ.get("PATH", os.defpath)
    return {
        "PATH": path if programs is None else f"{programs}:{path}",
        "HOME": str(directory),
        "TMPDIR": str(directory),
        "LC_ALL": "C",
        "TZ": "UTC",
    }


def remove(directory: Path) -> None:
    """Remove a directory of a server."""
    shutil.rmtree(directory, ignore_errors=True)
    guard.tell(f"done {directory}")


class Guard:
    """The pipe to this run's guardian, which the first line starts; safe across threads and forks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._popen: subprocess.Popen[str] | None = None
        self._owner = 0

    def tell(self, line: str) -> None:
        """Write one line."""
        with self._lock:
            if self._popen is None or self._owner != os.getpid():
                self._start()
            assert self._popen is not None
            assert self._popen.stdin is not None
            self._popen.stdin.write(line + "\n")
            self._popen.stdin.flush()

    def _start(self) -> None:
        self._owner = os.getpid()
        self._popen = subprocess.Popen(
            [sys.executable, "-I", "-S", guardian.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
        )
        # registered before any server's own, and so run after them
        atexit.register(self._dismiss)

    def _dismiss(self) -> None:
        if self._popen is not None and self._owner == os.getpid():
            assert self._popen.stdin is not None
            self._popen.stdin.close()
            self._popen.wait()


guard = Guard()
