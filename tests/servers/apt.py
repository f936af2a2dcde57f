"""Servers out of the packages of Debian and Ubuntu, for machines that are root's own, as in CI."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from tests.servers import galera, mysql, pgbouncer, postgresql, standby
from tests.servers.base import Options, Server, Unavailable

POLICY = Path("/usr/sbin/policy-rc.d")
CACHE = Path(__file__).resolve().parents[2] / ".servers" / "mysql"

_lock = threading.Lock()


def start_postgresql(options: Options) -> Server:
    """Install PostgreSQL and start one of its own."""
    install(["postgresql"])
    return postgresql.from_binaries(options, "apt")


def start_mariadb(options: Options) -> Server:
    """Install MariaDB's server programs, which come without a service, and start one."""
    install(["mariadb-server-core", "mariadb-client-core"])
    return mysql.mariadb_from_binaries(options, "apt")


def start_pgbouncer(options: Options) -> Server:
    """Install PgBouncer and start one of its own."""
    install(["pgbouncer"])
    return pgbouncer.from_binaries(options, "apt")


def start_standby(options: Options) -> Server:
    """Install PostgreSQL and start a primary with a standby."""
    install(["postgresql"])
    return standby.from_binaries(options, "apt")


def start_galera(options: Options) -> Server:
    """Install Galera's library beside MariaDB, unpack its scripts, and start a cluster."""
    install(["mariadb-server-core", "mariadb-client-core", "galera-4", "rsync", "lsof"])
    with _lock:
        _unpack_galera_scripts()
    return galera.from_binaries(options, "apt")


def _unpack_galera_scripts() -> None:
    """Take the scripts out of mariadb-server, whose installation would bring a service along."""
    if shutil.which(galera.SCRIPTS[0]) or (galera.CACHE / galera.SCRIPTS[0]).exists():
        return
    galera.CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=galera.CACHE) as partial:
        _run(["apt-get", "-qq", "download", "mariadb-server"], Path(partial))
        (package,) = Path(partial).glob("*.deb")
        _run(["dpkg-deb", "--extract", str(package), f"{partial}/root"])
        for name in reversed(galera.SCRIPTS):  # the one that is looked for comes last
            (Path(partial) / "root" / "usr" / "bin" / name).rename(galera.CACHE / name)


def start_mysql(options: Options) -> Server:
    """Start the MySQL of Ubuntu's own release, or the one of Debian unstable, unpacked only."""
    if _distribution() == "ubuntu":
        install(["mysql-server-core-8.4"], ["mysql-server-core-8.0"])
        return mysql.mysql_from_binaries(options, "apt")
    directory = Path(os.environ.get("SQLLOCKS_MYSQL_DIR", CACHE))
    if not (directory / "bin" / "mysqld").exists():
        _need_apt()
        script = Path(__file__).with_name("mysql_debian.sh")
        with _lock:
            _run([str(script), str(directory)])
    return mysql.start_mysql(directory / "bin" / "mysqld", "apt", options)


def install(*alternatives: list[str]) -> None:
    """Install the first of the alternatives that can be had; raise Unavailable where none can."""
    _need_apt()
    if os.geteuid() != 0:
        raise Unavailable("apt-get needs root")
    with _lock, no_services():
        failures = []
        for refresh in (False, True):
            if refresh:
                _run(["apt-get", "-qq", "update"])
            for packages in alternatives:
                try:
                    return _run(_INSTALL + packages)
                except Unavailable as error:
                    failures.append(str(error))
    raise Unavailable(failures[-1])


_INSTALL = [
    "apt-get",
    "-qq",
    "--yes",
    "--no-install-recommends",
    "--no-upgrade",  # an upgrade would restart a server that may be in use
    "-o",
    "DPkg::Lock::Timeout=120",
    "-o",
    "Dpkg::Options::=--force-confold",
    "install",
]


@contextlib.contextmanager
def no_services() -> Iterator[None]:
    """Keep packages from starting their service while they are being installed."""
    if POLICY.exists():  # the machine's owner has decided already
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    try:
        POLICY.chmod(0o755)
        yield
    finally:
        POLICY.unlink()


def _need_apt() -> None:
    if shutil.which("apt-get") is None or _distribution() not in {"debian", "ubuntu"}:
        raise Unavailable("not Debian or Ubuntu")


def _distribution() -> str:
    try:
        lines = Path("/etc/os-release").read_text().splitlines()
    except OSError:
        return ""
    values = dict(line.split("=", 1) for line in lines if "=" in line)
    return values.get("ID", "").strip('"')


def _run(argv: list[str], directory: Path | None = None) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    done = subprocess.run(
        argv,
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        env=environment,
        cwd=directory,
        timeout=600,
    )
    if done.returncode != 0:
        last = (done.stderr or done.stdout).strip().splitlines()[-3:]
        raise Unavailable(f"{Path(argv[0]).name} failed: {' / '.join(last)}")
