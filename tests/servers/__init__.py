"""The database servers of the tests: found, started side by side, and ended with the run.

    servers = provide(["postgresql", "mysql"])      the shared ones of a run; Missing says why
    url = require_server("postgresql")              in a test: its URL, or the test is skipped
    with launch("postgresql") as server:            a private one, which a test may stop and kill
        with fresh_database(server) as url:
            engine = create_engine(url_for(url, "psycopg"))

    def test_…(galera, own_server, own_standby, …):  see tests/servers/fixtures.py

`python -m tests.servers check` tells what this machine can give, `up` starts it for a developer.
"""

from tests.servers.base import NAMES, ON_DEMAND, Missing, Server, Unavailable
from tests.servers.launching import launch, provide
from tests.servers.local import LocalServer
from tests.servers.pgbouncer import PgBouncer
from tests.servers.shared import require_server
from tests.servers.urls import DRIVERS, fresh_database, url_for, variable

__all__ = [
    "DRIVERS",
    "NAMES",
    "ON_DEMAND",
    "LocalServer",
    "Missing",
    "PgBouncer",
    "Server",
    "Unavailable",
    "fresh_database",
    "launch",
    "provide",
    "require_server",
    "url_for",
    "variable",
]
