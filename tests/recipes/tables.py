"""The application's tables, and its engine in each process: what jobs of other processes work with."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sqlalchemy import BigInteger, Column, Integer, MetaData, String, Table
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker
from sqlalchemy.orm import sessionmaker

from sqllocks.recipes.audit import AsyncAuditChain, AuditChain, audit_chain
from sqllocks.recipes.outbox import AsyncOutbox, Outbox, outbox_table
from sqllocks.recipes.schedule import AsyncSlots, Slots, schedule_slots
from tests.scenarios import jobs
from tests.scenarios.targets import Target

metadata = MetaData()
audit = audit_chain(metadata)
outbox = outbox_table(metadata)
slots = schedule_slots(metadata)
effects = Table(
    "effects",
    metadata,
    Column("id", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True),
    Column("name", String(80), nullable=False),
    Column("token", BigInteger, nullable=False),
)


class Parts:
    """One application in one process: its sessions and its recipes, in the form of the target."""

    def __init__(self, target: Target) -> None:
        self.asyncio = target.asyncio
        self.provider = jobs.clients.of(target).provider
        # one writer at a time has the file: the others wait for it in the driver
        patient = replace(target, connect_args=(("timeout", 20),)) if "sqlite" in target.address else target
        engine = patient.engine()
        self.engine = engine
        if isinstance(engine, AsyncEngine):
            self.sessions: Any = async_sessionmaker(engine)
            self.audit: Any = AsyncAuditChain(self.provider, audit, ttl=5, wait=20)
            self.outbox: Any = AsyncOutbox(self.provider, outbox, self.sessions, ttl=2)
            self.slots: Any = AsyncSlots(slots, self.sessions)
        else:
            self.sessions = sessionmaker(engine)
            self.audit = AuditChain(self.provider, audit, ttl=5, wait=20)
            self.outbox = Outbox(self.provider, outbox, self.sessions, ttl=2)
            self.slots = Slots(slots, self.sessions)

    def run(self, call: Callable[[], Any]) -> Any:
        """Make a call in the form of the target."""
        if not self.asyncio:
            return call()

        async def awaited() -> Any:
            answer = call()
            return await answer if inspect.isawaitable(answer) else answer

        return jobs.clients.loop.run(awaited())

    def close(self) -> None:
        self.run(self.engine.dispose)


_parts: dict[Target, Parts] = {}


def parts_of(target: Target) -> Parts:
    """Return the application of this process for a target."""
    if target not in _parts:
        _parts[target] = Parts(target)
    return _parts[target]


def close_all() -> None:
    """Close the engines of this process."""
    for parts in _parts.values():
        parts.close()
    _parts.clear()
