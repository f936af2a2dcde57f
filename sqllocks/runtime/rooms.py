"""Where those who wait meet: the providers of one lock table in this process share lines and wake-ups."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from weakref import WeakSet, WeakValueDictionary

from sqlalchemy import URL, Engine, Table, make_url
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker
from sqlalchemy.orm import sessionmaker

from sqllocks.backends.memory import MemoryLeases
from sqllocks.core.lines import Lines
from sqllocks.dialects.postgresql_waiting import signal
from sqllocks.runtime.kept import inherit
from sqllocks.runtime.wakeup import Hub, KeyWatch
from sqllocks.runtime.wakeup_asyncio import AsyncioHub
from sqllocks.runtime.wakeup_blocking import BlockingHub

__all__ = ["AsyncioRoom", "BlockingRoom", "MemoryRoom", "private_lines", "private_memory", "process_memory"]

_mutex = threading.Lock()
# each lives as long as a provider that uses it
_shared: WeakValueDictionary[Hashable, Lines] = WeakValueDictionary()
_hubs: WeakValueDictionary[Hashable, BlockingHub | AsyncioHub] = WeakValueDictionary()
_every_line: WeakSet[Lines] = WeakSet()


def private_lines() -> Lines:
    """Return lines for a backend that no other provider shares."""
    lines = Lines(threading.Lock())
    with _mutex:
        _every_line.add(lines)
    return lines


@dataclass(frozen=True, slots=True)
class MemoryRoom:
    """Where the locks of a memory twin are, and what goes before its keys."""

    backend: MemoryLeases
    lines: Lines
    namespace: str = ""


def private_memory(
    kind: str = "lease", *, namespace: str = "", clock: Callable[[], datetime] | None = None
) -> MemoryRoom:
    """Return a memory that nobody else shares."""
    return MemoryRoom(MemoryLeases(clock, kind=kind), private_lines(), namespace)


def process_memory(kind: str = "lease", *, namespace: str = "") -> MemoryRoom:
    """Return the one memory of this process; a forked child has another one."""
    new = private_memory()
    with _mutex:
        shared = _memories.setdefault(os.getpid(), new)
    return MemoryRoom(shared.backend.of_kind(kind), shared.lines, namespace)


_memories: dict[int, MemoryRoom] = {}


class BlockingRoom:
    """What one blocking provider has a share in."""

    def __init__(self, bind: Any, engine: Engine, table: Table) -> None:
        self._key = ("blocking", _identity(bind))
        self._engine = engine
        self._hub: BlockingHub | None = None
        self.lines = _lines((*self._key, table.fullname))
        self.wakeups = _TableWakeups(self._find, table.name) if _tells(engine) else None

    def close(self) -> None:
        """Close the listening session unless somebody waits."""
        if self._hub is not None:
            self._hub.close()

    def _find(self) -> BlockingHub:
        if self._hub is None:
            with _mutex:
                hub = _hubs.get(self._key)
                if not isinstance(hub, BlockingHub):
                    hub = _hubs[self._key] = BlockingHub(self._engine)
                self._hub = hub
        return self._hub


class AsyncioRoom:
    """What one asyncio provider has a share in; the listening session belongs to the running loop."""

    def __init__(self, bind: Any, engine: AsyncEngine, table: Table) -> None:
        self._key = ("asyncio", _identity(bind))
        self._engine = engine
        self._hub: AsyncioHub | None = None
        self.lines = _lines((*self._key, table.fullname))
        self.wakeups = _TableWakeups(self._find, table.name) if _tells(engine) else None

    async def close(self) -> None:
        """Close the listening session unless somebody waits."""
        if self._hub is not None:
            await self._hub.close()

    def _find(self) -> AsyncioHub:
        if self._hub is None:  # a provider belongs to one loop
            key = (*self._key, asyncio.get_running_loop())
            with _mutex:
                hub = _hubs.get(key)
                if not isinstance(hub, AsyncioHub):
                    hub = _hubs[key] = AsyncioHub(self._engine)
                self._hub = hub
        return self._hub


class _TableWakeups:
    """Watches the keys of one lock table."""

    def __init__(self, hub: Callable[[], Hub], table_name: str) -> None:
        self._hub = hub
        self._table_name = table_name

    def watch(self, key: str, alarm: Callable[[], None]) -> KeyWatch:
        return self._hub().watch(signal(self._table_name, key), alarm)


def _lines(key: Hashable) -> Lines:
    with _mutex:
        lines = _shared.get(key)
        if lines is None:
            lines = _shared[key] = Lines(threading.Lock())
            _every_line.add(lines)
        return lines


def _tells(engine: Engine | AsyncEngine) -> bool:
    return engine.dialect.name == "postgresql"


def _identity(bind: Any) -> Hashable:
    """What two providers of the same database have in common: the engine, or the URL's text.

    Two engines may lead to different places under one URL.
    """
    if isinstance(bind, sessionmaker | async_sessionmaker):
        bind = bind.kw["bind"]
    if isinstance(bind, str | URL):
        return make_url(bind).render_as_string(hide_password=False)
    engine: Hashable = bind.sync_engine if isinstance(bind, AsyncEngine) else bind
    return engine


def _forget_parent() -> None:
    """In a forked child: its parent's waiters and sessions are not its own."""
    global _mutex  # noqa: PLW0603 - another thread of the parent may have held it
    _mutex = threading.Lock()
    for lines in list(_every_line):
        inherit(lines.forget(threading.Lock()))
    for hub in list(_hubs.values()):
        inherit(hub.forget())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parent)
