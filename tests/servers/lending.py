"""Servers that a run starts when a test first asks for them, once for all of its processes.

They belong to the process that began the run, which outlives pytest-xdist's workers; tests ask it over
a socket whose path the environment holds.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from multiprocessing.connection import Client, Connection, Listener
from typing import NoReturn

from tests.servers.accounts import temporary_directory
from tests.servers.base import ON_DEMAND, Missing, Server, Unavailable
from tests.servers.launching import launch
from tests.servers.process import guard, remove
from tests.servers.shared import missing_variable
from tests.servers.urls import variable

ADDRESS = "SQLLOCKS_TEST_LENDER"
BASES: Mapping[str, tuple[str, ...]] = {
    "pgbouncer-session": ("pgbouncer", "postgresql"),
    "standby": ("postgresql",),
    "galera": ("mariadb",),
}
_known: dict[str, tuple[str, ...] | Missing] = {}


def offers(found: Iterable[str], asked: Iterable[str]) -> dict[str, str | Missing]:
    """Return what a run with the servers `found` starts on demand, or why it does not.

    Of the names `asked` for, those are offered whose plain counterpart the run has.
    """
    offered: dict[str, str | Missing] = {}
    present, wanted = set(found), set(asked)
    for name, bases in BASES.items():
        absent = [base for base in bases if base not in present]
        if os.environ.get(variable(name)):
            offered[name] = "(env)"
        elif name not in wanted:
            offered[name] = Missing(name, "not asked for in this run")
        elif absent:
            offered[name] = Missing(name, f"this run has no {absent[0]}")
        else:
            offered[name] = "on demand"
    return offered


class Lender:
    """Starts each server once, on the first request, and ends all of them when closed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._lent: dict[str, Future[Server]] = {}
        self._directory = temporary_directory(None)
        guard.tell(f"directory {self._directory}")
        self.address = str(self._directory / "lender")
        self._listener = Listener(self.address, "AF_UNIX")
        threading.Thread(target=self._serve, name="lender", daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._answer, args=(connection,), name="lent", daemon=True).start()

    def _answer(self, connection: Connection) -> None:
        # the asking process may have been ended meanwhile
        with connection, contextlib.suppress(EOFError, OSError):
            try:
                connection.send(self.lend(str(connection.recv())).urls)
            except Unavailable as error:
                connection.send(str(error))

    def lend(self, name: str) -> Server:
        """Return the server, started if it is not yet; raises Unavailable, the same each time."""
        with self._lock:
            if self._closed:
                raise Unavailable("the run is over")
            begin = name not in self._lent
            future = self._lent.setdefault(name, Future())
        if begin:
            try:
                future.set_result(_start(name))
            except BaseException as error:
                future.set_exception(error if isinstance(error, Unavailable) else Unavailable(repr(error)))
        return future.result()

    def close(self) -> None:
        """End what was lent, also what is just being started."""
        with self._lock:
            self._closed = True
        for future in self._lent.values():
            if future.exception() is None:
                future.result().close()
        self._listener.close()
        remove(self._directory)


def _start(name: str) -> Server:
    upstream = os.environ.get(variable("postgresql")) if name == "pgbouncer-session" else None
    return launch(name, upstream=upstream)


def borrow(name: str) -> tuple[str, ...]:
    """Return the URLs of a server on demand; raises Unavailable with the reason."""
    if name not in _known:
        _known[name] = _ask(name)
    known = _known[name]
    if isinstance(known, Missing):
        raise Unavailable(known.reason)
    return known


def _ask(name: str) -> tuple[str, ...] | Missing:
    if given := os.environ.get(variable(name)):
        return tuple(given.split())
    if reason := os.environ.get(missing_variable(name)):
        return Missing(name, reason)
    address = os.environ.get(ADDRESS)
    if address is None:
        return Missing(name, "not asked for in this run")
    with Client(address, "AF_UNIX") as connection:
        connection.send(name)
        answer: tuple[str, ...] | str = connection.recv()
    return Missing(name, " | ".join(answer.splitlines())) if isinstance(answer, str) else answer


def require_on_demand(name: str) -> tuple[str, ...]:
    """Return the driverless URLs of a server on demand; where it is missing, skip or fail the test."""
    assert name in ON_DEMAND
    try:
        return borrow(name)
    except Unavailable as reason:
        excuse(name, reason)


def excuse(name: str, reason: Unavailable) -> NoReturn:
    """Skip the calling test for a missing server, or fail it where SQLLOCKS_REQUIRE lists the server."""
    import pytest

    if name in required():
        pytest.fail(f"no {name}: {reason}", pytrace=False)
    pytest.skip(f"no {name}: {reason}")


def required() -> list[str]:
    """Return the names that SQLLOCKS_REQUIRE lists."""
    return [name.strip() for name in os.environ.get("SQLLOCKS_REQUIRE", "").split(",") if name.strip()]
