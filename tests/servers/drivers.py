"""Drivers of databases that the tests can do without, because they are hard to install."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from tests.servers import apt
from tests.servers.base import Missing, Unavailable
from tests.servers.shared import missing_variable

DRIVERS = {"mysqlclient": ("MySQLdb", "mysqldb")}
"""Names of packages, with the module and the name that SQLAlchemy has for it."""
# mysqlclient comes as source: its own C code and the C library of MySQL or MariaDB
BUILD_PACKAGES = ["gcc", "libc6-dev", "libmariadb-dev", "pkg-config"]
PIP = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1"]
PIP_LIMIT = 300.0


def provide_driver(name: str, *, install: bool) -> str | Missing:
    """Return the version of a driver; with ``install``, try to install one that is missing."""
    module, _ = DRIVERS[name]
    if find_spec(module) is None and install:
        try:
            _install(name)
        except Unavailable as reason:
            return Missing(name, f"cannot be installed: {reason}")
        importlib.invalidate_caches()
    try:
        return version(name)
    except PackageNotFoundError:
        return Missing(name, "not installed")


def require_driver(name: str) -> None:
    """Skip the calling test where the driver with that SQLAlchemy name is not installed."""
    import pytest

    for package, (module, called) in DRIVERS.items():
        if called == name and find_spec(module) is None:
            reason = os.environ.get(missing_variable(package), "not installed")
            pytest.skip(f"no {package}: {reason}")


def _install(name: str) -> None:
    try:
        _pip(name)
    except Unavailable:
        own_python = ["python3-dev"] if sys.base_prefix == "/usr" else []
        apt.install([*BUILD_PACKAGES, *own_python])
        _pip(name)


def _pip(name: str) -> None:
    try:
        done = subprocess.run(
            [*PIP, name], check=False, capture_output=True, text=True, errors="replace", timeout=PIP_LIMIT
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(str(error)) from error
    if done.returncode != 0:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise Unavailable(f"pip: {' '.join(last)}")
