"""The database of a run: its tables, an operator's view of it, and what an administrator can break."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack, suppress

from sqlalchemy import NullPool, create_engine, text

from sqllocks import LockError, SqlLockProvider
from tests.chaos import ledger
from tests.chaos.history import Write, now
from tests.chaos.plan import Plan
from tests.servers import LocalServer, Server, fresh_database, launch, require_server, url_for
from tests.servers.clients import NotYet, execute

DRIVERS = {"postgresql": "psycopg", "sqlite": "pysqlite"}
POLL = 0.05
SESSIONS = {
    "postgresql": "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
    " AND backend_type = 'client backend' AND pid <> pg_backend_pid()",
    "mysql": "SELECT id FROM information_schema.processlist WHERE db = database() AND id <> connection_id()",
}
TERMINATE = {"postgresql": "SELECT pg_terminate_backend({})", "mysql": "KILL {}"}


class Place:
    """A fresh database on the shared server, or on one of the run's own."""

    def __init__(self, plan: Plan, stack: ExitStack) -> None:
        if plan.own_server:
            self._server: Server | str = stack.enter_context(launch(plan.server, durable=True))
        else:
            self._server = require_server(plan.server)
        self.url = stack.enter_context(fresh_database(self._server))
        self._plain = self.url.render_as_string(hide_password=False)
        self._scheme = self.url.get_backend_name()
        address = url_for(self.url, DRIVERS.get(plan.server, "pymysql"))
        self._engine = create_engine(address, poolclass=NullPool)
        self.operator = stack.enter_context(SqlLockProvider(address, holder="operator"))
        self.operator.create_table()
        ledger.create(self._engine, plan.keys)
        self._plan = plan

    def terminate_one(self, chance: random.Random) -> bool:
        """Have the server end one session; return whether there was one."""
        with suppress(NotYet):  # the server may be away, or the session gone
            sessions = sorted(int(number) for (number,) in execute(self._plain, SESSIONS[self._scheme]))
            if sessions:
                execute(self._plain, TERMINATE[self._scheme].format(chance.choice(sessions)))
                return True
        return False

    @property
    def can_restart(self) -> bool:
        """Tell whether there is a server process of the run's own."""
        return isinstance(self._server, LocalServer)

    def restart(self, *, orderly: bool) -> None:
        """End the run's own server, as a shutdown or as a crash, and start it again."""
        assert isinstance(self._server, LocalServer)
        (self._server.stop if orderly else self._server.kill)()
        self._server.start()

    def lock_file(self, seconds: float) -> None:
        """Keep a SQLite file locked by a foreign writer for a while."""
        with self._engine.connect() as connection, suppress(Exception):
            connection.execute(text("BEGIN IMMEDIATE"))
            time.sleep(seconds)

    def held_after(self, seconds: float) -> list[str]:
        """Return the keys that are not free when every ttl must be over."""
        limit = now() + seconds
        while self._held() and now() < limit:
            time.sleep(POLL)
        return sorted({*self._held(), *self._not_to_be_had()})

    def writes(self) -> list[Write]:
        """Return what was written under guard."""
        return ledger.read(self._engine)

    def _held(self) -> list[str]:
        return [info.lock_key for info in self.operator.list_locks() if info.held]

    def _not_to_be_had(self) -> list[str]:
        busy = []
        for key in self._plan.keys:
            with suppress(LockError):
                handle = self.operator.acquire(key, ttl=5)
                if handle and self.operator.release(key, owner_token=handle.owner_token):
                    continue
            busy.append(key)
        return busy
