"""Where a case runs: the name of the argument that it takes tells it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.conformance.kinds import ALL_MORE_KINDS, KINDS, MORE_KINDS, Kind

__all__ = ["GROUPS", "kinds_of"]

# what differs between the servers differs in one form as well
_ONE_PER_SERVER = (("postgresql", "asyncpg"), ("mysql", "pymysql"), ("mariadb", "aiomysql"))

GROUPS: Mapping[str, Callable[[Kind], bool]] = {
    "subject": lambda kind: kind.server != "sqlite",
    "memory_subject": lambda kind: not kind.table,
    "driver_subject": lambda kind: kind.network,
    "form_subject": lambda kind: kind.network and kind not in MORE_KINDS,
    "server_subject": lambda kind: (kind.server, kind.driver) in _ONE_PER_SERVER,
    "blocking_subject": lambda kind: kind.network and not kind.asyncio and kind not in MORE_KINDS,
    "asyncio_subject": lambda kind: kind.network and kind.asyncio,
    "postgresql_subject": lambda kind: kind.server == "postgresql",
    "mysql_subject": lambda kind: (
        kind.server in {"mysql", "mariadb"} and kind not in ALL_MORE_KINDS and kind.asyncio
    ),
    "sqlite_subject": lambda kind: kind.server == "sqlite",
}


def kinds_of(name: str) -> list[Kind]:
    """Return the backends, drivers and forms of a group."""
    return [kind for kind in (*KINDS, *MORE_KINDS) if GROUPS[name](kind)]
