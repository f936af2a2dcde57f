"""An audit log: entries of a tenant that each name the one before, written under a transaction's lock."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from tests.scenarios import jobs
from tests.scenarios.targets import Target

TTL = 5.0
# no constraint keeps a fork out: what does is under test
TABLE = (
    "CREATE TABLE audit (id {identity}, tenant VARCHAR(80) NOT NULL, number BIGINT NOT NULL,"
    " previous BIGINT NOT NULL, body VARCHAR(80) NOT NULL)"
)
IDENTITY = {"postgresql": "BIGSERIAL PRIMARY KEY"}
HEAD = text("SELECT COALESCE(MAX(number), 0) FROM audit WHERE tenant = :tenant")
APPEND = text(
    "INSERT INTO audit (tenant, number, previous, body) VALUES (:tenant, :previous + 1, :previous, :body)"
)


def key(tenant: str) -> str:
    """Return the key of a tenant's chain."""
    return f"audit:hash-chain:tenant:{tenant}"


def append(locks: Any, session: Session, tenant: str, body: str, *, wait: float) -> int:
    """Append an entry in the session's transaction; return its number."""
    locks.hold_for_transaction(session, key(tenant), ttl=TTL, wait=wait)
    previous = session.execute(HEAD, {"tenant": tenant}).scalar_one()
    session.execute(APPEND, {"tenant": tenant, "previous": previous, "body": body})
    return int(previous) + 1


async def async_append(locks: Any, session: AsyncSession, tenant: str, body: str, *, wait: float) -> int:
    """Do the same in the asyncio form."""
    await locks.hold_for_transaction(session, key(tenant), ttl=TTL, wait=wait)
    previous = (await session.execute(HEAD, {"tenant": tenant})).scalar_one()
    await session.execute(APPEND, {"tenant": tenant, "previous": previous, "body": body})
    return int(previous) + 1


@dataclass(frozen=True, slots=True)
class Appended:
    """An entry that was committed; the moment after the commit is of the monotonic clock."""

    number: int
    committed: float


def append_one(target: Target, tenant: str, body: str, *, wait: float) -> Appended:
    """Append an entry in a transaction of its own."""
    engine = target.engine()
    locks = jobs.clients.of(target).provider
    if isinstance(engine, AsyncEngine):
        return jobs.clients.loop.run(_async_append_one(engine, locks, tenant, body, wait))
    assert isinstance(engine, Engine)
    with Session(engine) as session, session.begin():
        number = append(locks, session, tenant, body, wait=wait)
    engine.dispose()
    return Appended(number, time.monotonic())


async def _async_append_one(engine: AsyncEngine, locks: Any, tenant: str, body: str, wait: float) -> Appended:
    async with AsyncSession(engine) as session, session.begin():
        number = await async_append(locks, session, tenant, body, wait=wait)
    await engine.dispose()
    return Appended(number, time.monotonic())
