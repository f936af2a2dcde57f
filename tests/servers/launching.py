"""Which source gives which server, and in what order they are asked."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from tests.servers import apt, containers, external, galera, mysql, pgbouncer, postgresql, standby
from tests.servers.base import NAMES, ON_DEMAND, Missing, Options, Server, Unavailable
from tests.servers.urls import variable

# in the order in which they are asked
SOURCES: Mapping[str, Mapping[str, Callable[[Options], Server]]] = {
    "postgresql": {
        "docker": containers.start_postgresql,
        "binaries": postgresql.from_binaries,
        "wheel": postgresql.from_wheel,
        "apt": apt.start_postgresql,
    },
    "mysql": {
        "docker": containers.start_mysql,
        "binaries": mysql.mysql_from_binaries,
        "apt": apt.start_mysql,
    },
    "mariadb": {
        "docker": containers.start_mariadb,
        "binaries": mysql.mariadb_from_binaries,
        "apt": apt.start_mariadb,
    },
    "pgbouncer": {
        "binaries": pgbouncer.from_binaries,
        "apt": apt.start_pgbouncer,
    },
    "standby": {
        "binaries": standby.from_binaries,
        "wheel": standby.from_wheel,
        "apt": apt.start_standby,
    },
    "galera": {
        "binaries": galera.from_binaries,
        "apt": apt.start_galera,
    },
    "sqlite": {
        "library": external.sqlite,
    },
}


POOLERS = ("pgbouncer", "pgbouncer-session")


def launch(
    name: str,
    *,
    durable: bool = False,
    settings: Mapping[str, str] | None = None,
    upstream: str | None = None,
    sources: Iterable[str] | None = None,
) -> Server:
    """Start a private server and return it once it answers; the caller closes it.

    `settings` go into the server's own configuration, over those of the tests. A PgBouncer stands in
    front of `upstream`, the URL of a PostgreSQL, or of one that it brings and closes itself; the name
    "pgbouncer-session" stands for one that pools by session. "standby" is a hot standby with the primary
    that it owns, "galera" a cluster of three nodes.
    `sources` names those that may be asked, among docker, binaries, wheel and apt; without it, the
    environment's SQLLOCKS_SERVER_SOURCES does, a comma list. Raises Unavailable with every source's
    reason.
    """
    if name == "pgbouncer-session":
        name, settings = "pgbouncer", {**pgbouncer.SESSION_SETTINGS, **(settings or {})}
    options = Options(durable, dict(settings or {}), upstream)
    if name == "pgbouncer" and upstream is None:
        return _launch_with_upstream(options, sources)
    allowed = _allowed(sources)
    reasons = []
    for source, start in SOURCES[name].items():
        if allowed is not None and source not in allowed and name != "sqlite":
            continue
        try:
            return start(options)
        except Unavailable as error:
            reasons.append(f"{source}: {error}")
    raise Unavailable("; ".join(reasons) or "no source is allowed")


def _allowed(sources: Iterable[str] | None) -> set[str] | None:
    if sources is not None:
        return set(sources)
    listed = os.environ.get("SQLLOCKS_SERVER_SOURCES", "")
    return set(listed.split(",")) if listed else None


def _launch_with_upstream(options: Options, sources: Iterable[str] | None) -> Server:
    owned = launch("postgresql", durable=options.durable)
    try:
        server = launch("pgbouncer", settings=options.settings, upstream=owned.url, sources=sources)
    except BaseException:
        owned.close()
        raise
    assert isinstance(server, pgbouncer.PgBouncer)
    server.own(owned)
    return server


def provide(names: Iterable[str] = NAMES) -> dict[str, Server | Missing]:
    """Start the servers that a test run shares, side by side; what cannot be had says why.

    A server whose variable is set in the environment is taken as it is and never ended. Those of
    ON_DEMAND are always started anew.
    """
    known = (*NAMES, *ON_DEMAND)
    wanted = [name for name in known if name in set(names)]
    unknown = set(names) - set(known)
    if unknown:
        raise ValueError(f"no such server: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    with ThreadPoolExecutor(max_workers=len(known), thread_name_prefix="server") as pool:
        first = {name: pool.submit(_provide, name) for name in wanted if name not in POOLERS}
        found = {name: future.result() for name, future in first.items()}
    for name in POOLERS:
        if name in wanted:
            found[name] = _provide_pooler(name, found.get("postgresql"))
    return {name: found[name] for name in wanted}


def _provide(name: str, upstream: str | None = None) -> Server | Missing:
    url = os.environ.get(variable(name)) if name in NAMES else None
    try:
        if url:
            return external.ExternalServer(name, url)
        return launch(name, upstream=upstream)
    except Unavailable as error:
        # one line, for the header of the run and the reasons of skipped tests
        reason = " | ".join(str(error).splitlines())
        return Missing(name, f"{variable(name)}: {reason}" if url else reason)


def _provide_pooler(name: str, upstream: Server | Missing | None) -> Server | Missing:
    if isinstance(upstream, Missing) and variable(name) not in os.environ:
        return Missing(name, f"no PostgreSQL to stand in front of ({upstream.reason})")
    return _provide(name, upstream.url if isinstance(upstream, Server) else None)
