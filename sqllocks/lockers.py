"""Session locks as users import them: thin pairs over one core."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

from sqlalchemy import MetaData
from sqlalchemy.engine import Dialect

from sqllocks.backends.base import Capabilities
from sqllocks.backends.session_locks import SessionLocks
from sqllocks.core.diagnosing import session_findings, told, unreachable
from sqllocks.core.leases import Leases
from sqllocks.core.locking import Seat
from sqllocks.diagnosis import IN_MEMORY, Diagnosis, Finding
from sqllocks.dialects import enforced_lease
from sqllocks.errors import LockError
from sqllocks.fencing import Guards, MemoryGuards
from sqllocks.locker_forms import AsyncioLocker, BlockingLocker
from sqllocks.model import Seconds
from sqllocks.naming import LockNames, checked_naming
from sqllocks.policy import (
    HEARTBEAT,
    checked_lease,
    checked_most,
    checked_pooler,
    checked_prefix,
    checked_sessions,
    checked_wait,
)
from sqllocks.runtime.asynchronous import AsyncioBackground, AsyncioClock
from sqllocks.runtime.binding import async_engine_for, engine_for
from sqllocks.runtime.blocking import BlockingBackground, BlockingClock, BlockingSessions, drive
from sqllocks.runtime.dedicated import SessionPlan
from sqllocks.runtime.dedicated_asyncio import AsyncioDedicated
from sqllocks.runtime.dedicated_blocking import BlockingDedicated
from sqllocks.runtime.diagnosing import CLINIC
from sqllocks.runtime.everyone import EVERYONE
from sqllocks.runtime.pins import FormPins, asyncio_finish
from sqllocks.runtime.rooms import AsyncioRoom, BlockingRoom, MemoryRoom, private_lines, private_memory
from sqllocks.runtime.sessions_asyncio import AsyncioSessions
from sqllocks.schema import TABLE_NAME, core_locks
from sqllocks.session_lock import AsyncSessionLock

_LEFT = 1.0
"""Seconds for which the end of a diagnosis waits for its connection to close."""

__all__ = ["AsyncMemoryLocker", "AsyncSqlLocker", "MemoryLocker", "SqlLocker"]


class SqlLocker(BlockingLocker):
    """Session locks: PostgreSQL's advisory locks, MySQL's and MariaDB's named locks, each with its row.

    ``bind`` is a ``sessionmaker``, an ``Engine`` or a URL; its pool is never used. All locks of a locker
    and process share one connection of its own (``sessions`` of them where that many are asked for), which
    the server ends after ``lease`` seconds of silence, and which says something every ``heartbeat``
    seconds (at most a third of ``lease``; where it is left out, that third or 5 s, whichever is less). So
    a holder that froze or vanished loses its locks within ``lease``, one that died loses them at once.

    ``naming`` and ``prefix`` make the names at the server (``"fnv1a64"``: those of the Go package
    ``dlock``). ``direct_url`` leads past a pooler, ``pooler="session"`` says that a pooler is in session
    mode. With ``fencing=False`` no table is needed, and there is neither a token nor exclusion with leases
    of the same key. ``max_session_locks`` bounds the locks of a session (PostgreSQL: a quarter of the
    server's room for locks where it is left out, because a full lock table refuses connections).

    Nothing is asked of the database here; the first lock raises ``BackendUnsupported`` where the server's
    session locks exclude nobody. Safe to use from several threads.
    """

    _caller: ClassVar[str] = "SqlLocker"
    """What messages call it, also where a class of the library derives from it."""

    def __init__(
        self,
        bind: Any,
        *,
        namespace: str = "",
        lease: Seconds = 15,
        heartbeat: Seconds | None = HEARTBEAT,
        naming: str = "sha256",
        prefix: str = "",
        direct_url: Any = None,
        pooler: str | None = None,
        fencing: bool = True,
        max_session_locks: int | None = None,
        sessions: int = 1,
        holder: str | None = None,
        table: str = TABLE_NAME,
        schema: str | None = None,
    ) -> None:
        plan = _plan(lease, heartbeat, pooler)
        bind = bind if direct_url is None else direct_url
        engine = engine_for(bind, caller=self._caller)
        locks = core_locks(MetaData(), name=table, schema=schema)
        self._engine, self._table, self._plan, self._fencing = engine, locks, plan, fencing
        ttl = enforced_lease(engine.dialect.name, plan.lease)
        self._sessions = [BlockingDedicated(engine, locks, plan) for _ in range(checked_sessions(sessions))]
        self._room = BlockingRoom(bind, engine, locks)
        carrier = SessionLocks(
            self._sessions,
            Capabilities(table=f"{schema}.{table}" if schema else table),
            LockNames(checked_naming(naming), checked_prefix(prefix)),
            fencing=fencing,
            most=checked_most(max_session_locks),
        )
        leases = Leases(
            BlockingClock(),
            carrier,
            namespace=namespace,
            holder=holder,
            lines=self._room.lines if fencing else private_lines(),
            wakeups=self._room.wakeups if fencing else None,
        )
        holding = leases.holding(BlockingBackground())
        self._seat = Seat(leases, holding, round(ttl * 1_000_000), plan.heartbeat, carrier)
        for session in self._sessions:
            session.stirred = holding.keeper.hurry
        pins = FormPins(leases.pinning, drive)
        self._guards = _guards(engine.dialect, table, schema, namespace, pins)

    def diagnose(self) -> Diagnosis:
        sessions = BlockingSessions(self._engine, self._table)
        try:
            findings = drive(CLINIC.examine(sessions, table=self._fencing))
        finally:
            sessions.close(_LEFT)
        return told(findings, self._session_findings(findings))

    def _session_findings(self, before: Sequence[Finding], *, needed: bool = True) -> list[Finding]:
        if unreachable(before):
            return []
        problem: LockError | None = None
        try:
            drive(self._seat.contact())
        except LockError as error:
            problem = error
        return session_findings(problem, self._sessions[0], self._plan.lease, needed=needed)

    def close(self, timeout: Seconds | None = 10) -> None:
        drive(self._seat.holding.close(checked_wait(timeout)))
        for session in self._sessions:
            session.close()
        self._room.close()


class AsyncSqlLocker(AsyncioLocker):
    """Session locks: PostgreSQL's advisory locks, MySQL's and MariaDB's named locks, each with its row.

    ``bind`` is an ``async_sessionmaker``, an ``AsyncEngine`` or a URL; its pool is never used. What is
    said of ``SqlLocker`` and its arguments holds here too. Belongs to the event loop of its first use; its
    heartbeat runs in that loop on purpose, because a loop that cannot send it cannot step down either.
    """

    _caller: ClassVar[str] = "AsyncSqlLocker"
    """What messages call it, also where a class of the library derives from it."""

    def __init__(
        self,
        bind: Any,
        *,
        namespace: str = "",
        lease: Seconds = 15,
        heartbeat: Seconds | None = HEARTBEAT,
        naming: str = "sha256",
        prefix: str = "",
        direct_url: Any = None,
        pooler: str | None = None,
        fencing: bool = True,
        max_session_locks: int | None = None,
        sessions: int = 1,
        holder: str | None = None,
        table: str = TABLE_NAME,
        schema: str | None = None,
    ) -> None:
        plan = _plan(lease, heartbeat, pooler)
        bind = bind if direct_url is None else direct_url
        engine = async_engine_for(bind, caller=self._caller)
        clock = AsyncioClock()
        locks = core_locks(MetaData(), name=table, schema=schema)
        self._engine, self._table, self._plan, self._fencing = engine, locks, plan, fencing
        ttl = enforced_lease(engine.dialect.name, plan.lease)
        self._sessions = [
            AsyncioDedicated(engine, locks, plan, clock) for _ in range(checked_sessions(sessions))
        ]
        self._room = AsyncioRoom(bind, engine, locks)
        carrier = SessionLocks(
            self._sessions,
            Capabilities(table=f"{schema}.{table}" if schema else table),
            LockNames(checked_naming(naming), checked_prefix(prefix)),
            fencing=fencing,
            most=checked_most(max_session_locks),
        )
        self._background = AsyncioBackground()
        leases = Leases(
            clock,
            carrier,
            namespace=namespace,
            holder=holder,
            lines=self._room.lines if fencing else private_lines(),
            wakeups=self._room.wakeups if fencing else None,
        )
        holding = leases.holding(self._background)
        self._seat = Seat(leases, holding, round(ttl * 1_000_000), plan.heartbeat, carrier)
        for session in self._sessions:
            session.stirred = holding.keeper.hurry
        pins = FormPins(leases.pinning, asyncio_finish(clock))
        self._guards = _guards(engine.dialect, table, schema, namespace, pins)

    async def diagnose(self) -> Diagnosis:
        sessions = AsyncioSessions(self._engine, self._table, AsyncioClock())
        try:
            findings = await CLINIC.examine(sessions, table=self._fencing)
        finally:
            await sessions.close(_LEFT)
        return told(findings, await self._session_findings(findings))

    async def _session_findings(self, before: Sequence[Finding], *, needed: bool = True) -> list[Finding]:
        if unreachable(before):
            return []
        problem: LockError | None = None
        try:
            await self._seat.contact()
        except LockError as error:
            problem = error
        return session_findings(problem, self._sessions[0], self._plan.lease, needed=needed)

    async def aclose(self, timeout: Seconds | None = 10) -> None:
        longest = checked_wait(timeout)
        await self._seat.holding.close(longest)
        await self._background.stop()
        for session in self._sessions:
            await session.close(longest)
        await self._room.close()


class MemoryLocker(BlockingLocker):
    """Session locks in the memory of this object: for tests and for programs that are one process."""

    def __init__(self, *, lease: Seconds = 15, heartbeat: Seconds | None = HEARTBEAT) -> None:
        plan = _plan(lease, heartbeat, None)
        room = self._find()
        leases = Leases(BlockingClock(), room.backend, namespace=room.namespace, lines=room.lines)
        holding = leases.holding(BlockingBackground())
        self._seat = Seat(leases, holding, round(plan.lease * 1_000_000), plan.heartbeat)
        self._guards = MemoryGuards(room.backend, namespace=room.namespace)

    def diagnose(self) -> Diagnosis:
        return IN_MEMORY

    def close(self, timeout: Seconds | None = 10) -> None:
        drive(self._seat.holding.close(checked_wait(timeout)))

    def _find(self) -> MemoryRoom:
        return private_memory("session")


class AsyncMemoryLocker(AsyncioLocker):
    """Session locks in the memory of this object: for tests and for programs that are one process."""

    def __init__(self, *, lease: Seconds = 15, heartbeat: Seconds | None = HEARTBEAT) -> None:
        plan = _plan(lease, heartbeat, None)
        room = self._find()
        self._clock = AsyncioClock()
        self._background = AsyncioBackground()
        leases = Leases(self._clock, room.backend, namespace=room.namespace, lines=room.lines)
        holding = leases.holding(self._background)
        self._seat = Seat(leases, holding, round(plan.lease * 1_000_000), plan.heartbeat)
        self._guards = MemoryGuards(room.backend, namespace=room.namespace)

    async def diagnose(self) -> Diagnosis:
        return IN_MEMORY

    async def lock(self, key: str, *, wait: Seconds | None = None) -> AsyncSessionLock:
        await asyncio.sleep(0)  # who is cancelled already must not get it
        return await super().lock(key, wait=wait)

    async def try_lock(self, key: str) -> AsyncSessionLock | None:
        await asyncio.sleep(0)
        return await super().try_lock(key)

    async def aclose(self, timeout: Seconds | None = 10) -> None:
        longest = checked_wait(timeout)
        await self._clock.settle(longest)
        await self._seat.holding.close(longest)
        await self._background.stop()

    def _find(self) -> MemoryRoom:
        return private_memory("session")


def _plan(lease: Seconds, heartbeat: Seconds | None, pooler: str | None) -> SessionPlan:
    long, short = checked_lease(lease, heartbeat)
    return SessionPlan(long, short, checked_pooler(pooler))


def _guards(dialect: Dialect, table: str, schema: str | None, namespace: str, pins: FormPins) -> Guards:
    EVERYONE.join(pins)
    return Guards(table=table, schema=schema, namespace=namespace, pins=pins, dialect=dialect)
