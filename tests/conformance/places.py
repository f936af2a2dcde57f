"""The databases of a test run: one for each kind, made when first needed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from sqlalchemy import make_url

from sqllocks import AsyncSqlLockProvider, SqlLockProvider
from tests.conformance.driving import LoopThread
from tests.conformance.kinds import Kind
from tests.conformance.observing import Observer
from tests.conformance.subject import Place
from tests.servers import fresh_database, require_server
from tests.servers.drivers import require_driver


class Places:
    """Gives each kind its own database, its lock table, two clients and an onlooker."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._known: dict[Kind, Place] = {}
        self._loop = LoopThread()
        self._stack.callback(self._loop.close)
        self._threads = self._stack.enter_context(ThreadPoolExecutor(16, "conformance"))

    def close(self) -> None:
        """Close every client and drop every database."""
        self._stack.close()

    def of(self, kind: Kind) -> Place:
        """Return the place of a kind; skips the test where its server is missing."""
        if kind not in self._known:
            self._known[kind] = self._made(kind)
        return self._known[kind]

    def _made(self, kind: Kind) -> Place:
        if not kind.table:
            return Place(kind, self._loop, self._threads)
        require_server(kind.server)
        require_driver(kind.driver)
        base = make_url(self._stack.enter_context(fresh_database(kind.server)))
        place = Place(kind, self._loop, self._threads, kind.url(base), Observer(kind, base))
        assert place.observer is not None
        self._stack.callback(place.observer.close)
        address = kind.url(base).render_as_string(hide_password=False)
        for holder in ("worker-a", "worker-b"):
            form = AsyncSqlLockProvider if kind.asyncio else SqlLockProvider
            client = place.client(form(address, holder=holder))
            self._stack.callback(client.close)
            place.clients.append(client)
        place.clients[0].call("create_table")
        return place
