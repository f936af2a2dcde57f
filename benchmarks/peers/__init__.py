"""What users would pick instead: adapters of a few lines, each for one package."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from benchmarks.contenders import Entry
from benchmarks.installing import reasons
from benchmarks.turns import Row, reason

_POSTGRESQL = ("postgresql",)
_NETWORK = ("postgresql", "mysql", "mariadb")
_MODULES = {
    "sqlalchemy-dlock": ("sqlalchemy_dlock", _NETWORK),
    "tooz": ("tooz", _NETWORK),
    "pals": ("pals", _POSTGRESQL),
    "postgresql-lock": ("postgresql_lock", _POSTGRESQL),
    "pg-dlock": ("pg_dlock", _POSTGRESQL),
    "postgres-mutex": ("postgres_mutex", _POSTGRESQL),
    "mithril-locks": ("mithril_locks", ("postgresql", "sqlite")),
    "redis": ("redis_py", ("redis",)),
    "python-redis-lock": ("python_redis_lock", ("redis",)),
}
"""Packages, with the adapter and the servers that it is for; imported only where they are asked."""


def entries(server: str, *, redis: bool) -> tuple[list[Entry], list[Row]]:
    """Return the peers for a server, and a row with the reason for each that cannot be imported."""
    found: list[Entry] = []
    missing: list[Row] = []
    asked = {server, "redis"} if redis else {server}
    for package, (module, servers) in _MODULES.items():
        if not asked.intersection(servers):
            continue
        try:
            adapter = importlib.import_module(f"benchmarks.peers.{module}")
        except Exception as error:  # some fail with a SyntaxError on older Pythons
            missing.append(
                Row("exclusion", server, "", package, "", "", note=f"failed: {_why(package, error)}")
            )
            continue
        offered: Sequence[Entry] = adapter.entries(server)
        found += offered
    return found, missing


def _why(package: str, error: Exception) -> str:
    try:
        return f"{package} {version(package)} cannot be imported: {reason(error)}"
    except PackageNotFoundError:
        told = [why for requirement, why in reasons().items() if requirement.startswith(package)]
        return f"not installed{': ' if told else ''}{''.join(told)}"


def versions() -> dict[str, str]:
    """Return the installed version of each peer."""
    told = {}
    for package in _MODULES:
        try:
            told[package] = version(package)
        except PackageNotFoundError:
            told[package] = "not installed"
    return told
