"""What a case works with: lockers and electors of one backend × driver × form, in blocking style."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any

from sqllocks import (
    AsyncMemoryElector,
    AsyncMemoryLocker,
    AsyncSqlElector,
    AsyncSqlLocker,
    AsyncSqlLockProvider,
    MemoryElector,
    MemoryLocker,
    SqlElector,
    SqlLocker,
    SqlLockProvider,
)
from sqllocks.naming import LockNames
from tests.conformance.subject import Place, Subject

QUICK: dict[str, Any] = {"lease": 6, "heartbeat": 0.5}
"""A quick heartbeat, and a lease that outlasts the hiccups of a loaded machine."""


class LockSubject(Subject):
    """One backend × driver × form, for the length of one case; ``one`` and ``two`` are its lockers."""

    def __init__(self, place: Place, stack: ExitStack, lockers: dict[Any, list[Any]]) -> None:
        super().__init__(place, stack)
        if self.kind.server == "sqlite":
            return  # it has no session locks
        if not self.kind.table:
            self.one = self.two = self.locker()
            return
        if self.kind not in lockers:
            lockers[self.kind] = [self._locker(holder=holder) for holder in ("one", "two")]
        self.one, self.two = lockers[self.kind]

    def do(self, outcome: Any) -> Any:
        """Return what a call gives: in the asyncio form once it is awaited."""
        return self.run(outcome) if inspect.isawaitable(outcome) else outcome  # type: ignore[arg-type]

    def start(self, call: Callable[[], Any]) -> Future[Any]:
        """Begin a call that goes on beside the case."""
        if self.kind.asyncio:
            return self.loop.start(_awaited(call))
        return self._place.threads.submit(call)

    def locker(self, bind: Any = None, **options: Any) -> Any:
        """Return a locker of its own, closed at the end of the case."""
        return self._closing(self._locker(bind, **options))

    def elector(self, bind: Any = None, **options: Any) -> Any:
        """Return an elector, closed at the end of the case."""
        if not self.kind.table:
            options.pop("strategy", None)
            return self._closing((AsyncMemoryElector if self.kind.asyncio else MemoryElector)(**options))
        form: Any = AsyncSqlElector if self.kind.asyncio else SqlElector
        return self._closing(form(self.address if bind is None else bind, **options))

    def leases(self, bind: Any = None, **options: Any) -> Any:
        """Return a lease provider, closed at the end of the case."""
        form: Any = AsyncSqlLockProvider if self.kind.asyncio else SqlLockProvider
        return self._closing(form(self.address if bind is None else bind, **options))

    def close(self, thing: Any, timeout: float = 0.1) -> None:
        """Close a locker, an elector or a provider."""
        self.do(thing.aclose(timeout) if self.kind.asyncio else thing.close(timeout))

    def carrier(self, key: str, *, prefix: str = "") -> int | None:
        """Return the number of the server's session that holds the server-side lock of a key."""
        observer, names = self.observer, LockNames("sha256", prefix)
        if self.kind.server == "postgresql":
            number = names.advisory_id(key)
            found = observer.rows(
                "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1"
                " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
                " AND ((classid::bigint << 32) | objid::bigint) = :number",
                number=number,
            )
            return int(found[0][0]) if found else None
        name = names.lock_name(key, database=self.url.database or "")
        found = observer.rows("SELECT IS_USED_LOCK(:name)", name=name)
        return None if found[0][0] is None else int(found[0][0])

    def kill(self, session: int) -> None:
        """Have the server end one of its sessions."""
        if self.kind.server == "postgresql":
            self.observer.rows("SELECT pg_terminate_backend(:session)", session=session)
        else:
            self.observer.rows(f"KILL {int(session)}")

    def _locker(self, bind: Any = None, **options: Any) -> Any:
        if not self.kind.table:
            return (AsyncMemoryLocker if self.kind.asyncio else MemoryLocker)(**options)
        form: Any = AsyncSqlLocker if self.kind.asyncio else SqlLocker
        return form(self.address if bind is None else bind, **options)

    def _closing(self, thing: Any) -> Any:
        self._stack.callback(self.close, thing)
        return thing


async def _awaited(call: Callable[[], Any]) -> Any:
    return await call()
