"""What processes do with the outbox and with slots."""

from __future__ import annotations

import os
import signal
from datetime import datetime
from typing import Any

from sqlalchemy import insert

from sqllocks import Lease
from sqllocks.recipes.outbox import Dispatched, Message
from sqllocks.recipes.schedule import SlotRun, async_run_slot, run_slot
from tests.recipes.tables import Parts, effects, parts_of
from tests.scenarios.jobs import wait_until
from tests.scenarios.targets import Target


def add(target: Target, count: int) -> list[str]:
    """Store messages in one transaction."""
    parts = parts_of(target)

    def blocking() -> list[str]:
        with parts.sessions.begin() as session:
            return [parts.outbox.add(session, "paid", {"n": number}) for number in range(count)]

    async def asynchronous() -> list[str]:
        async with parts.sessions.begin() as session:
            return [await parts.outbox.add(session, "paid", {"n": number}) for number in range(count)]

    keys: list[str] = parts.run(asynchronous if parts.asyncio else blocking)
    return keys


def dispatch_at(moment: float, target: Target, runs: int, *, batch: int) -> list[Dispatched]:
    """Dispatch again and again; each delivery leaves a row."""
    parts = parts_of(target)
    wait_until(moment)
    return [parts.run(lambda: parts.outbox.dispatch(delivery(parts), batch=batch)) for _ in range(runs)]


def dispatch_and_die(target: Target) -> None:
    """Deliver one message and be killed before it can be marked."""
    parts = parts_of(target)
    deliver = delivery(parts)

    def fatal(message: Message) -> None:
        deliver(message)
        os.kill(os.getpid(), signal.SIGKILL)

    parts.outbox.dispatch(fatal, batch=1)


def delivery(parts: Parts) -> Any:
    """Return a function that delivers a message into the table of effects."""

    def blocking(message: Message) -> None:
        with parts.sessions.begin() as session:
            session.execute(insert(effects).values(_row(message)))

    async def asynchronous(message: Message) -> None:
        async with parts.sessions.begin() as session:
            await session.execute(insert(effects).values(_row(message)))

    return asynchronous if parts.asyncio else blocking


def _row(message: Message) -> dict[str, Any]:
    return {"name": message.idempotency_key, "token": message.fencing_token}


def trigger_at(
    moment: float, target: Target, planned_at: datetime, *, remembered: bool, dies: bool = False
) -> SlotRun[int]:
    """Run one slot; its effect is a row."""
    parts = parts_of(target)
    slots = parts.slots if remembered else None

    def work(lease: Lease) -> int:
        with parts.sessions.begin() as session:
            session.execute(insert(effects).values(name="slot", token=lease.fencing_token))
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return os.getpid()

    async def async_work(lease: Any) -> int:
        async with parts.sessions.begin() as session:
            await session.execute(insert(effects).values(name="slot", token=lease.fencing_token))
        return os.getpid()

    wait_until(moment)
    call: Any = async_run_slot if parts.asyncio else run_slot
    run: SlotRun[int] = parts.run(
        lambda: call(
            parts.provider,
            "nightly",
            planned_at,
            async_work if parts.asyncio else work,
            ttl=0.6 if dies else 5,
            slots=slots,
        )
    )
    return run
