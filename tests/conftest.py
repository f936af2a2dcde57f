"""The servers of a test run: started before it, told in its header, ended after it."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping

import pytest

from tests.conformance.kinds import driver_note
from tests.servers import NAMES, ON_DEMAND, Missing, Server, provide
from tests.servers.drivers import DRIVERS, provide_driver
from tests.servers.lending import ADDRESS, Lender, offers, required
from tests.servers.shared import publish, withdraw

pytest_plugins = ["tests.servers.fixtures"]

_found = pytest.StashKey[dict[str, Server | Missing]]()
_drivers = pytest.StashKey[dict[str, str | Missing]]()
_offered = pytest.StashKey[dict[str, str | Missing]]()
_lender = pytest.StashKey[Lender]()
_added = pytest.StashKey[dict[str, str]]()

# these print something and run no test
_TELLING_OPTIONS = ("collectonly", "help", "version", "showfixtures", "show_fixtures_per_test", "markers")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --no-servers."""
    parser.addoption(
        "--no-servers",
        action="store_true",
        help="start no database server before the tests; those that SQLLOCKS_TEST_<NAME>_URL names are used",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Start the servers, in the one process that pytest-xdist's workers inherit from."""
    _hear_signals()
    if hasattr(config, "workerinput"):
        # PyMySQL makes a TLS context for each connection, and to read the certificates of all authorities
        # takes 25 ms of a processor; the servers of the tests have none of theirs
        os.environ.setdefault("SSL_CERT_FILE", os.devnull)
        return
    names = _names(config)
    config.stash[_found] = found = provide([name for name in names if name not in ON_DEMAND])
    install = not config.getoption("--no-servers")
    drivers = {name: provide_driver(name, install=install) for name in DRIVERS} if found else {}
    config.stash[_drivers] = drivers
    offered = offers([name for name in found if name not in _missing(found)], names) if found else {}
    config.stash[_offered] = offered
    config.stash[_added] = publish({**found, **_missing(drivers), **_missing(offered)})
    if len(_missing(offered)) < len(offered):
        config.stash[_lender] = lender = Lender()
        config.stash[_added][ADDRESS] = os.environ[ADDRESS] = lender.address
    _insist({**found, **drivers, **offered})


def _missing(found: Mapping[str, Server | str | Missing]) -> dict[str, Missing]:
    return {name: each for name, each in found.items() if isinstance(each, Missing)}


def _hear_signals() -> None:
    """Undo what a shell does to jobs in the background: tests send these signals, to children as well."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(signal, "SIGQUIT") and signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)


def _names(config: pytest.Config) -> list[str]:
    if any(config.getoption(option, default=False) for option in _TELLING_OPTIONS):
        return []
    listed = os.environ.get("SQLLOCKS_SERVERS", ",".join((*NAMES, *ON_DEMAND))).split(",")
    if config.getoption("--no-servers"):
        listed = [name for name in NAMES if f"SQLLOCKS_TEST_{name.upper()}_URL" in os.environ]
        listed += ON_DEMAND
    return ["sqlite", *(name.strip() for name in listed if name.strip())]


def _insist(found: Mapping[str, Server | str | Missing]) -> None:
    """End the run if a server or driver that SQLLOCKS_REQUIRE lists is missing."""
    if not found:
        return
    reasons = []
    for name in required():
        server = found.get(name, Missing(name, "not asked for in this run"))
        if isinstance(server, Missing):
            reasons.append(f"{name}: {server.reason}")
    if reasons:
        pytest.exit("SQLLOCKS_REQUIRE: missing\n" + "\n".join(reasons), returncode=1)


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the servers that this run started."""
    if (added := config.stash.get(_added, None)) is not None:
        withdraw(added)
    if (lender := config.stash.get(_lender, None)) is not None:
        lender.close()
    for server in reversed(config.stash.get(_found, {}).values()):
        if isinstance(server, Server):
            server.close()


def pytest_report_header(config: pytest.Config) -> list[str]:
    """List each server and each driver that need not be there: its version, or why it is missing."""
    lines = []
    for name, server in config.stash.get(_found, {}).items():
        if isinstance(server, Missing):
            lines.append(f"{name}: missing: {server.reason}")
        else:
            lines.append(f"{name}: {server.version} ({server.source})")
    offered, drivers = config.stash.get(_offered, {}), config.stash.get(_drivers, {})
    for name, each in (*offered.items(), *drivers.items()):
        lines.append(f"{name}: {f'missing: {each.reason}' if isinstance(each, Missing) else each}")
    if lines:
        lines.append(driver_note())
    return lines
