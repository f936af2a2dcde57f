"""MySQL and MariaDB: two servers with one protocol, each recognised by what it says it is."""

from __future__ import annotations

import shutil
import signal
import subprocess
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from tests.servers import clients, process
from tests.servers.accounts import give, reaches, unprivileged
from tests.servers.base import DATABASE, PASSWORD, USER, Options, Unavailable
from tests.servers.local import LocalServer

PLACES = (
    "/usr/sbin",
    "/usr/libexec",
    "/usr/local/mysql/bin",
    "/opt/homebrew/opt/*/bin",
    "/usr/local/opt/*/bin",
)
SETTINGS = {
    "bind-address": "127.0.0.1",
    "max-connections": "300",
    "innodb-buffer-pool-size": "64M",
    "skip-name-resolve": "ON",
}
# 2, not 0: what was committed must survive the crash of the server's process, and only the crash
# of the machine may lose it
NOT_DURABLE = {"innodb-flush-log-at-trx-commit": "2", "innodb-doublewrite": "OFF"}
FIRST_STATEMENTS = (
    f"CREATE DATABASE {DATABASE}",
    f"CREATE USER '{USER}'@'%' IDENTIFIED BY '{PASSWORD}'",
    f"GRANT ALL PRIVILEGES ON *.* TO '{USER}'@'%' WITH GRANT OPTION",
)


class MySQLFamily(LocalServer):
    """What the two have in common."""

    scheme = "mysql"
    end_signal = signal.SIGTERM
    settings: ClassVar[Mapping[str, str]]
    not_durable: ClassVar[Mapping[str, str]]

    def __init__(self, program: Path, *, source: str, options: Options) -> None:
        account = unprivileged()
        # both run as root too, where the account cannot enter the directory of the program
        self.runs_as_root = account is not None and not reaches(account, program)
        super().__init__(source=source, account=None if self.runs_as_root else account, options=options)
        self._program = program
        self._data = self.directory / "data"
        self._first = self.directory / "first.sql"

    @abstractmethod
    def _fill_data_directory(self) -> None:
        """Create the system tables."""

    def _initialise(self) -> None:
        self._first.write_text("".join(f"{statement};\n" for statement in FIRST_STATEMENTS))
        give(self.account, self._first)
        self._fill_data_directory()

    @classmethod
    def server_settings(cls, options: Options) -> dict[str, str]:
        """Return what goes onto the command line."""
        durability = {} if options.durable else {**NOT_DURABLE, **cls.not_durable}
        return {**SETTINGS, **cls.settings, **durability, **options.settings}

    def _user(self) -> list[str]:
        return ["--user=root"] if self.runs_as_root else []

    def _command(self) -> list[str | Path]:
        own = [
            f"--datadir={self._data}",
            f"--port={self.port}",
            f"--socket={self.directory / 'mysql.sock'}",
            f"--pid-file={self.directory / 'mysql.pid'}",
            f"--tmpdir={self.directory}",
        ]
        first = [f"--init-file={self._first}"] if self._first.exists() else []
        values = [f"--{name}={value}" for name, value in self.server_settings(self.options).items()]
        return [self._program, "--no-defaults", *self._user(), *own, *first, *values]

    def _ask(self) -> str:
        version, directory = clients.identity(self.admin_url)
        self._check_own(directory, self._data)
        return clients.checked_kind(self.name, version)

    def _populate(self) -> None:
        self._first.unlink()


class MySQL(MySQLFamily):
    """Oracle's MySQL."""

    name = "mysql"
    settings: ClassVar = {"mysqlx": "OFF", "secure-file-priv": "NULL", "innodb-redo-log-capacity": "64M"}
    not_durable: ClassVar = {"disable-log-bin": "ON", "innodb-redo-log-capacity": "16M"}

    def _fill_data_directory(self) -> None:
        process.run(
            [
                self._program,
                "--no-defaults",
                "--initialize-insecure",
                *self._user(),
                f"--datadir={self._data}",
                f"--tmpdir={self.directory}",
                "--innodb-redo-log-capacity=16M",
                "--innodb-flush-log-at-trx-commit=0",
                "--innodb-doublewrite=OFF",
                "--disable-log-bin",
            ],
            account=self.account,
            directory=self.directory,
            log=self.log,
        )


class MariaDB(MySQLFamily):
    """MariaDB."""

    name = "mariadb"
    settings: ClassVar = {"innodb-log-file-size": "64M"}
    not_durable: ClassVar = {"innodb-log-file-size": "16M"}

    def _fill_data_directory(self) -> None:
        process.run(
            [
                _beside(self._program, "mariadb-install-db"),
                "--no-defaults",
                *self._user(),
                f"--datadir={self._data}",
                f"--tmpdir={self.directory}",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                "--skip-name-resolve",
                "--innodb-log-file-size=16M",
                "--innodb-flush-log-at-trx-commit=0",
            ],
            account=self.account,
            directory=self.directory,
            log=self.log,
        )


def _beside(program: Path, name: str) -> Path:
    bin_directories = [program.parent, program.parent.parent / "bin", Path("/usr/bin")]
    for directory in bin_directories:
        if (directory / name).exists():
            return directory / name
    raise Unavailable(f"{name} is missing beside {program}")


def mysql_from_binaries(options: Options, source: str = "binaries") -> MySQL:
    """Start the MySQL that is installed; raise Unavailable if there is none."""
    return start_mysql(installed("mysql", ("mysqld",)), source, options)


def start_mysql(program: Path, source: str, options: Options) -> MySQL:
    """Start a MySQL out of this mysqld."""
    clients.need_client("mysql")
    server = MySQL(program, source=source, options=options)
    server.create()
    return server


def mariadb_from_binaries(options: Options, source: str = "binaries") -> MariaDB:
    """Start the MariaDB that is installed; raise Unavailable if there is none."""
    clients.need_client("mysql")
    server = MariaDB(installed("mariadb", ("mariadbd", "mysqld")), source=source, options=options)
    server.create()
    return server


def installed(name: str, programs: tuple[str, ...]) -> Path:
    """Return the first of the programs that is of MySQL or MariaDB, as named, or raise Unavailable."""
    for program in programs:
        places = [path / program for place in PLACES for path in Path("/").glob(place[1:])]
        on_path = shutil.which(program)
        for candidate in [Path(on_path)] if on_path else places:
            if candidate.is_file() and _kind(candidate) == name:
                return candidate.resolve()
    raise Unavailable(f"no {' or '.join(programs)} of {name} on the path or in the usual places")


def _kind(program: Path) -> str:
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    return "mariadb" if "mariadb" in told.lower() else "mysql"
