"""What processes do to audit chains: append in transactions that are opened early, rolled back, nested."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import text

from sqllocks import BackendUnavailable, LockTimeout, TransactionConflict
from sqllocks.recipes.audit import AuditChain, AuditEntry
from tests.recipes.tables import Parts, audit, parts_of
from tests.scenarios.jobs import wait_until
from tests.scenarios.targets import Target

PATIENCE = 40
"""Tries after which a unit of work fails the test."""


class _RolledBack(Exception):
    pass


@dataclass(slots=True)
class Appended:
    """What one process has committed, for each tenant, and what stood in its way."""

    committed: Counter[str] = field(default_factory=Counter)
    met: Counter[str] = field(default_factory=Counter)


def append_many(moment: float, target: Target, tenants: Sequence[str], seed: int, *, count: int) -> Appended:
    """Carry out units of work, some of which roll back on purpose."""
    parts, chance, done = parts_of(target), random.Random(seed), Appended()
    wait_until(moment)
    for number in range(count):
        tenant = chance.choice(tenants)
        plan = _Plan.drawn(chance, f"{seed}.{number}")
        for _ in range(PATIENCE):
            try:
                done.committed[tenant] += parts.run(lambda: _unit(parts, tenant, plan))  # noqa: B023
                break
            except _RolledBack:
                done.met["rolled back"] += 1
                break
            except (TransactionConflict, LockTimeout, BackendUnavailable) as error:
                done.met[type(error).__name__] += 1
                done.met["unlocked"] += "without the lock" in error.message
                plan = plan.later(error)
        else:
            raise AssertionError(f"no way through: {done.met}")
    return done


@dataclass(frozen=True, slots=True)
class _Plan:
    name: str
    early: bool
    nested: bool
    twice: bool
    fails: bool

    @classmethod
    def drawn(cls, chance: random.Random, name: str) -> _Plan:
        return cls(name, *(chance.random() < share for share in (0.4, 0.25, 0.3, 0.25)))

    def later(self, error: Exception) -> _Plan:
        """Do as the error says: where the snapshot was too old, append first."""
        told = isinstance(error, TransactionConflict) and not error.retryable
        return _Plan(self.name, self.early and not told, self.nested, self.twice, self.fails)


def _unit(parts: Parts, tenant: str, plan: _Plan) -> Any:
    return _async_unit(parts, tenant, plan) if parts.asyncio else _blocking_unit(parts, tenant, plan)


def _blocking_unit(parts: Parts, tenant: str, plan: _Plan) -> int:
    appended = 0
    with parts.sessions.begin() as session:
        if plan.early:  # a snapshot from before the lock
            session.execute(text("SELECT count(*) FROM audit_chain")).all()
        if plan.nested:
            with session.begin_nested() as savepoint:
                parts.audit.append(session, {"unit": plan.name, "undone": True}, tenant=tenant)
                savepoint.rollback()
        for number in range(1 + plan.twice):
            parts.audit.append(session, {"unit": plan.name, "number": number}, tenant=tenant)
            appended += 1
        if plan.fails:
            raise _RolledBack
    return appended


async def _async_unit(parts: Parts, tenant: str, plan: _Plan) -> int:
    appended = 0
    async with parts.sessions.begin() as session:
        if plan.early:
            (await session.execute(text("SELECT count(*) FROM audit_chain"))).all()
        if plan.nested:
            async with session.begin_nested() as savepoint:
                await parts.audit.append(session, {"unit": plan.name, "undone": True}, tenant=tenant)
                await savepoint.rollback()
        for number in range(1 + plan.twice):
            await parts.audit.append(session, {"unit": plan.name, "number": number}, tenant=tenant)
            appended += 1
        if plan.fails:
            raise _RolledBack
    return appended


def append_one(target: Target, tenant: str) -> AuditEntry:
    """Append one entry in a transaction of its own, waiting for its turn."""
    parts = parts_of(target)
    with parts.sessions.begin() as session:
        entry: AuditEntry = parts.audit.append(session, {"n": 2}, tenant=tenant)
    return entry


def impatient(parts: Parts, wait: float = 0) -> AuditChain:
    """Return a blocking chain that hardly waits for others."""
    return AuditChain(parts.provider, audit, ttl=5, wait=wait)


def append_plainly(moment: float, target: Target, *, count: int) -> int:
    """Append entries, each in a transaction of its own, which nothing but the file may hold up."""
    parts = parts_of(target)
    wait_until(moment)
    for number in range(count):
        with parts.sessions.begin() as session:
            parts.audit.append(session, {"n": number}, tenant="acme")
    return count
