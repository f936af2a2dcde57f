"""The dedicated session of the asyncio form; its heartbeat runs in the loop on purpose.

A loop that cannot send a heartbeat cannot step down either.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from contextlib import suppress
from socket import socket
from typing import Any, TypeVar

from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from sqllocks.backends.port import LockSession
from sqllocks.dialects import SessionDialect
from sqllocks.dialects.base import Fault
from sqllocks.dialects.sessions import Server
from sqllocks.errors import LockError
from sqllocks.runtime.asynchronous import AsyncioClock, OneLoop
from sqllocks.runtime.dedicated import CLOSE_PATIENCE, IN_DOUBT, SessionPlan, Steady, gone
from sqllocks.runtime.kept import inherit
from sqllocks.runtime.sessions_asyncio import AsyncioSession, Speech
from sqllocks.runtime.sockets import AsyncioWatch, close, shut, socket_of

__all__ = ["AsyncioDedicated"]

T = TypeVar("T")


class _Session(AsyncioSession[SessionDialect]):
    server: Server
    socket: socket | None = None
    dead = False

    async def tell(self, text: str) -> None:
        """Run a statement that has no name."""
        await self.run(text, (), rows=False)


class AsyncioDedicated(Steady):
    """One session; tasks take turns."""

    _session: _Session | None

    def __init__(self, parent: AsyncEngine, table: Table, plan: SessionPlan, clock: AsyncioClock) -> None:
        super().__init__(parent, table, plan)
        self._clock = clock
        self._loop = OneLoop()
        self._running: asyncio.AbstractEventLoop | None = None
        self._watch = AsyncioWatch()
        self._reset()

    async def use(self, work: Callable[[LockSession], Coroutine[Any, Any, T]], *, opening: bool = True) -> T:
        """Do ``work`` on the session; waits while other tasks use it."""
        self._loop.check()
        self._running = asyncio.get_running_loop()
        self._forget_after_fork()
        async with self._mutex:
            if self._session is not None and self._session.dead:
                self._end(self._session)
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
            except asyncio.CancelledError:
                good = not session.broken
                raise
            finally:
                if not good or session.dead:
                    self._end(session)
            if session.dead:
                raise gone(sent=True)
            return answer

    def cut(self) -> None:
        """End the session, also while a statement hangs on it; from any thread."""
        session = self._session
        if session is None or self._pid != os.getpid() or self._running is None:
            return
        session.dead = True
        shut(session.socket)
        if self._running.is_closed():
            return
        # whoever is told may be in another thread, as a finalizer may
        self._running.call_soon_threadsafe(self._end, session)

    async def close(self, timeout: float | None = None) -> None:
        """End the session, if it can be when nobody uses it; a later call opens another one."""
        self._loop.check()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_PATIENCE), self._mutex:
                pass
        if self._session is not None:
            self._end(self._session)
        await self._clock.settle(timeout)

    def _busy(self) -> bool:
        return self._mutex.locked()

    async def _ready(self, *, opening: bool) -> _Session:
        if self._session is not None:
            return self._session
        if not opening:
            raise gone(sent=False)
        session = await self._connect()
        try:
            server = await self._introduce(session)
        except BaseException:
            await self._clock.shielded(session.discard())
            raise
        session.socket = socket_of(session.driver, server.client)
        self._session = session
        if session.socket is not None:
            watched = session.socket
            self._watch.add(watched, lambda: self._look(watched))
        return session

    async def _connect(self) -> _Session:
        pool = self._parent.sync_engine.pool.recreate()
        engine = create_async_engine(self._parent.url, pool=pool)
        return await _Session.open(engine, self._speak, Speech(engine), self._clock)

    async def _second(self) -> _Session:
        return await self._connect()

    async def _dismiss(self, session: _Session) -> None:
        await self._clock.shielded(session.discard())

    def _end(self, session: _Session) -> None:
        """Close it and tell; nothing where that was done before."""
        if self._session is not session:
            return
        session.dead = True
        self._session = None
        if session.socket is not None:
            self._watch.remove(session.socket)
        # the server ends it now, not when the driver has said goodbye
        shut(session.socket)
        closing = self._discard(session)
        try:
            self._clock.spawn(closing)
        except RuntimeError:  # the loop is gone
            closing.close()
        self.ended()()

    async def _discard(self, session: _Session) -> None:
        await session.discard()
        close(session.socket)

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._mutex = asyncio.Lock()
        self._session = None

    def _forget_after_fork(self) -> None:
        if self._pid != os.getpid():
            inherit(self._session)
            self._reset()
            self.ended()()
