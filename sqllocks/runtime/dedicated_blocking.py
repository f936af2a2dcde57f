"""The dedicated session of the blocking form."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from socket import socket
from typing import Any, TypeVar

from sqlalchemy import Engine, Table, create_engine

from sqllocks.backends.port import LockSession
from sqllocks.dialects import SessionDialect
from sqllocks.dialects.base import Fault
from sqllocks.dialects.sessions import Server
from sqllocks.errors import LockError
from sqllocks.runtime.blocking import BlockingSession
from sqllocks.runtime.dedicated import CLOSE_PATIENCE, IN_DOUBT, SessionPlan, Steady, gone
from sqllocks.runtime.kept import inherit
from sqllocks.runtime.sockets import BlockingWatch, close, shut, socket_of
from sqllocks.runtime.statements import Compiler, Faults

__all__ = ["BlockingDedicated"]

T = TypeVar("T")


class _Session(BlockingSession[SessionDialect]):
    server: Server
    socket: socket | None = None
    dead = False

    async def tell(self, text: str) -> None:
        """Run a statement that has no name."""
        self._run(text, (), rows=False)


class BlockingDedicated(Steady):
    """One session; threads take turns."""

    _session: _Session | None

    def __init__(self, parent: Engine, table: Table, plan: SessionPlan) -> None:
        super().__init__(parent, table, plan)
        self._faults = Faults(parent.url)
        self._reset()

    async def use(self, work: Callable[[LockSession], Coroutine[Any, Any, T]], *, opening: bool = True) -> T:
        """Do ``work`` on the session; blocks while other threads use it."""
        self._forget_after_fork()
        tell: list[Callable[[], None]] = []
        try:
            with self._mutex:
                self._bury(tell)
                session = await self._ready(opening=opening)
                good = False
                try:
                    answer = await work(session)
                    good = True
                except Fault as fault:
                    good = fault.kind not in IN_DOUBT
                    raise
                except LockError:
                    good = True
                    raise
                finally:
                    if not good or session.dead:
                        tell += self._end(session)
                if session.dead:
                    raise gone(sent=True)
                return answer
        finally:
            for each in tell:  # not under the mutex: whoever is told may come back
                each()

    def cut(self) -> None:
        """End the session, also while a statement hangs on it; from any thread."""
        session = self._session
        if session is None or self._pid != os.getpid():
            return
        session.dead = True
        shut(session.socket)
        if not self._mutex.acquire(blocking=False):
            return  # the one who uses it ends it, or the next one does
        try:
            tell = self._end(session)
        finally:
            self._mutex.release()
        for each in tell:
            each()

    def close(self, timeout: float = CLOSE_PATIENCE) -> None:
        """End the session, if it can be when nobody uses it; a later call opens another one."""
        if self._pid == os.getpid() and self._mutex.acquire(timeout=timeout):
            self._mutex.release()
        self.cut()

    def _busy(self) -> bool:
        return self._mutex.locked()

    async def _ready(self, *, opening: bool) -> _Session:
        if self._session is not None:
            return self._session
        if not opening:
            raise gone(sent=False)
        session = self._connect()
        try:
            server = await self._introduce(session)
        except BaseException:
            session.discard()
            raise
        session.socket = socket_of(session.driver, server.client)
        self._session = session
        if session.socket is not None:
            watched = session.socket
            _watch().add(watched, lambda: self._look(watched))
        return session

    def _connect(self) -> _Session:
        engine = create_engine(self._parent.url, pool=self._parent.pool.recreate())
        return _Session(engine, self._speak, self._faults, Compiler(engine.dialect))

    async def _second(self) -> _Session:
        return self._connect()

    async def _dismiss(self, session: _Session) -> None:
        session.discard()

    def _bury(self, tell: list[Callable[[], None]]) -> None:
        """End a session that was cut at the moment when its user had just left it."""
        if self._session is not None and self._session.dead:
            tell += self._end(self._session)

    def _end(self, session: _Session) -> Sequence[Callable[[], None]]:
        """Close it under the mutex; return what is to be called without it, if that was the end of it."""
        if self._session is not session:
            return ()
        session.dead = True
        self._session = None
        if session.socket is not None:
            _watch().remove(session.socket)
        session.discard()
        close(session.socket)
        return (self.ended(),)

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._mutex = threading.Lock()
        self._session = None

    def _forget_after_fork(self) -> None:
        if self._pid != os.getpid():
            inherit(self._session)
            self._reset()
            self.ended()()


_watches: dict[int, BlockingWatch] = {}


def _watch() -> BlockingWatch:
    # one for each process: a forked child has no thread of its parent
    found = _watches.get(os.getpid())
    return found or _watches.setdefault(os.getpid(), BlockingWatch())
