"""PgBouncer in front of a PostgreSQL."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

from sqlalchemy import make_url

from tests.servers import clients
from tests.servers.accounts import give, unprivileged
from tests.servers.base import Options, Server, Unavailable, on_database
from tests.servers.local import LocalServer

PLACES = ("/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin", "/usr/local/bin")
SETTINGS = {
    "listen_addr": "127.0.0.1",
    "pool_mode": "transaction",
    "default_pool_size": "4",
    "max_client_conn": "500",
    "auth_type": "scram-sha-256",
    "ignore_startup_parameters": "extra_float_digits",
    "server_tls_sslmode": "disable",
}
# here a client has its server session for as long as it is connected
SESSION_SETTINGS = {"pool_mode": "session", "default_pool_size": "60"}


class PgBouncer(LocalServer):
    """A pooler with the database names and users of its upstream; pools by transaction by default."""

    name = "pgbouncer"
    scheme = "postgresql"
    end_signal = signal.SIGTERM

    def __init__(self, program: Path, *, source: str, options: Options) -> None:
        super().__init__(source=source, account=unprivileged(), options=options)
        self._program = program
        self._owned: Server | None = None
        assert options.upstream is not None
        self.upstream = options.upstream
        self._config = self.directory / "pgbouncer.ini"
        self._users = self.directory / "users.txt"

    @property
    def url(self) -> str:
        """Return the URL of the upstream's database, through the pooler."""
        url = make_url(self.upstream).set(host="127.0.0.1", port=self.port)
        return url.render_as_string(hide_password=False)

    @property
    def console_url(self) -> str:
        """Return the URL of the pooler's own console, which takes SHOW POOLS and the like."""
        return on_database(self.url, "pgbouncer")

    def _initialise(self) -> None:
        target = make_url(self.upstream)
        # the password itself, not its hash: PgBouncer needs it to log in upstream
        self._users.write_text(f'"{target.username}" "{target.password}"\n')
        give(self.account, self._users)

    def _spawn(self) -> None:
        # here, because a first start may have to move to another port
        target = make_url(self.upstream)
        settings = {
            **SETTINGS,
            "listen_port": str(self.port),
            "auth_file": str(self._users),
            "admin_users": str(target.username),
            "unix_socket_dir": str(self.directory),
            "pidfile": str(self.directory / "pgbouncer.pid"),
            **self.options.settings,
        }
        lines = [f"[databases]\n* = host={target.host} port={target.port or 5432}\n[pgbouncer]\n"]
        lines += [f"{name} = {value}\n" for name, value in settings.items()]
        self._config.write_text("".join(lines))
        give(self.account, self._config)
        super()._spawn()

    def _command(self) -> list[str | Path]:
        return [self._program, self._config]

    def _ask(self) -> str:
        config = {str(row[0]): str(row[1]) for row in clients.execute(self.console_url, "SHOW CONFIG")}
        self._check_own(config["conffile"], self._config)
        ((version,),) = clients.execute(self.console_url, "SHOW VERSION")
        return str(version).removeprefix("PgBouncer ")

    def own(self, upstream: Server) -> None:
        """Take an upstream over, to close it at the end."""
        self._owned = upstream

    def close(self) -> None:
        """End the pooler, and the upstream that was started for it."""
        super().close()
        if self._owned is not None:
            self._owned.close()


def from_binaries(options: Options, source: str = "binaries") -> PgBouncer:
    """Start the PgBouncer that is installed, in front of `options.upstream`."""
    clients.need_client("postgresql")
    server = PgBouncer(_installed(), source=source, options=options)
    server.create()
    return server


def _installed() -> Path:
    candidates = [Path(place) / "pgbouncer" for place in PLACES]
    on_path = shutil.which("pgbouncer")
    for candidate in [Path(on_path)] if on_path else candidates:
        if candidate.is_file():
            return candidate
    raise Unavailable("no pgbouncer on the path or in the usual places")
