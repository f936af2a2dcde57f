"""A server that runs as a process of this machine, in a directory of its own."""

from __future__ import annotations

import atexit
import os
import signal
import time
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from subprocess import SubprocessError

from tests.servers import clients
from tests.servers.accounts import Account, temporary_directory
from tests.servers.base import Options, Server, Unavailable, server_url
from tests.servers.process import Process, accepts, free_port, guard, remove

START_LIMIT = 60.0
ATTEMPTS = 3


class LocalServer(Server):
    """Owns a directory, a port and a process; subclasses say what to run and how to ask it."""

    scheme: str
    end_signal: int
    abandon_signal: int = signal.SIGKILL
    programs: Path | None = None  # a directory of programs that the server itself runs

    def __init__(self, *, source: str, account: Account | None, options: Options) -> None:
        self.source = source
        self.account = account
        self.options = options
        self.directory = temporary_directory(account)
        self.log = self.directory / "server.log"
        self.port = free_port()
        self._process: Process | None = None
        self._owner = os.getpid()
        guard.tell(f"directory {self.directory}")
        atexit.register(self.close)

    @property
    def url(self) -> str:
        """Return the URL of the test database, without a driver."""
        return server_url(self.scheme, self.port)

    @property
    def pid(self) -> int:
        """Return the id of the server's process; raise RuntimeError when none runs."""
        if self._process is None:
            raise RuntimeError(f"{self.name} is not running")
        return self._process.pid

    @abstractmethod
    def _initialise(self) -> None:
        """Make what the first start needs."""

    @abstractmethod
    def _command(self) -> list[str | Path]:
        """Return the server's command line."""

    @abstractmethod
    def _ask(self) -> str:
        """Return the version of the server on the port; raise NotYet, or Unavailable if it is another's."""

    def _check_own(self, told: str, own: Path) -> None:
        """Raise Unavailable if the path that the answering server tells is not this one's."""
        if Path(told).resolve() != own.resolve():
            raise Unavailable(f"another server, of {told}, answers on port {self.port}")

    def _populate(self) -> None:
        """Create the test database; called once, when the server first answers."""

    def _tidy(self) -> None:
        """Give back what a crash left on the machine outside the directory."""

    def create(self) -> None:
        """Initialise and start for the first time; leave nothing behind on failure."""
        try:
            try:
                self._initialise()
            except (OSError, SubprocessError) as error:
                raise Unavailable(f"cannot initialise: {error}\n{self.log_tail()}") from error
            self._first_start()
            self._populate()
        except BaseException:
            self.close()
            raise

    def _first_start(self) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self.start()
            except Unavailable:
                # somebody may have taken the port since it was found free
                if attempt == ATTEMPTS or not accepts(self.port):
                    raise
                self.port = free_port()
        return None

    def start(self) -> None:
        """Start again after `stop` or `kill`, on the same port and data; return once it answers."""
        if self._process is not None and self._process.running():
            return
        self._end(Process.end)
        deadline = time.monotonic() + START_LIMIT
        self._spawn()
        try:
            self.version = self._answer(deadline)
        except BaseException:
            self._end(Process.kill)
            raise

    def _spawn(self) -> None:
        self._process = Process(
            self._command(),
            account=self.account,
            directory=self.directory,
            log=self.log,
            programs=self.programs,
            end_signal=self.end_signal,
            abandon_signal=self.abandon_signal,
        )

    def _answer(self, deadline: float) -> str:
        assert self._process is not None
        while self._process.running():
            if accepts(self.port):
                try:
                    return self._ask()
                except clients.NotYet as error:
                    last: object = error
            else:
                last = "nothing listens"
            if time.monotonic() > deadline:
                raise Unavailable(f"no answer within {START_LIMIT:.0f} s ({last})\n{self.log_tail()}")
            time.sleep(0.02)
        raise Unavailable(f"ended while starting\n{self.log_tail()}")

    def stop(self) -> None:
        """Shut down in order; data and port are kept."""
        self._end(Process.end)

    def kill(self) -> None:
        """End at once, as a crash would; data and port are kept."""
        self._end(Process.kill)

    def freeze(self, *backends: int) -> None:
        """Keep the server, or only these of its backend processes, from running until `thaw`.

        Connections stay open and nobody answers. Raises ValueError for a process of somebody else,
        RuntimeError when none runs.
        """
        if self._process is None:
            raise RuntimeError(f"{self.name} is not running")
        self._process.freeze(*backends)

    def thaw(self) -> None:
        """Let what `freeze` stopped run again; does nothing where nothing is frozen."""
        if self._process is not None:
            self._process.thaw()

    def close(self) -> None:
        """End the server and remove its data; a second call does nothing."""
        if self._owner != os.getpid():  # a fork runs the exit functions of its parent
            return
        self._end(Process.abandon)
        if self.directory.exists():
            self._tidy()
            remove(self.directory)
        atexit.unregister(self.close)

    def _end(self, how: Callable[[Process], None]) -> None:
        if self._process is not None:
            how(self._process)
            self._process = None

    def log_tail(self, lines: int = 6) -> str:
        """Return the end of the server's log."""
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
