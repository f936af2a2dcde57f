"""One planned slot of a schedule, run once across all instances."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Generic, TypeVar

from sqlalchemy import BigInteger, Column, ColumnElement, MetaData, Table, and_, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker

from sqllocks.errors import LockNotAcquired, LockValidationError
from sqllocks.lease import AsyncLease, Lease
from sqllocks.model import Seconds
from sqllocks.protocols import AsyncLockProvider, LockProvider
from sqllocks.recipes.work import AsyncioWork, BlockingWork, Held, Work, fitted
from sqllocks.runtime.blocking import drive
from sqllocks.schema import ByteString, Instant

__all__ = ["AsyncSlots", "SlotDone", "SlotRun", "Slots", "async_run_slot", "run_slot", "schedule_slots"]

T = TypeVar("T")


class SlotDone(LockNotAcquired):
    """The slot has run already, or its runner died in it: its row is there, whoever has the lock."""


@dataclass(frozen=True, slots=True)
class SlotRun(Generic[T]):
    """A slot that was run here: under which lock and token, and what the function returned."""

    schedule: str
    planned_at: datetime
    lock_key: str
    fencing_token: int
    result: T


def schedule_slots(metadata: MetaData, *, name: str = "schedule_slots", schema: str | None = None) -> Table:
    """Return the table of the slots that have run, added to ``metadata``: one row each, which is unique."""
    return Table(
        name,
        metadata,
        Column("schedule", ByteString(200), primary_key=True),
        Column("planned_at", Instant, primary_key=True),
        Column("fencing_token", BigInteger, nullable=False),
        Column("started_at", Instant, nullable=False),
        Column("finished_at", Instant),
        schema=schema,
        mysql_engine="InnoDB",
        mariadb_engine="InnoDB",
    )


class Slots:
    """Where the blocking form remembers the slots that have run."""

    def __init__(self, table: Table, sessions: sessionmaker[Any]) -> None:
        self.rows = _Rows(table)
        self.sessions = sessions


class AsyncSlots:
    """Where the asyncio form remembers the slots that have run."""

    def __init__(self, table: Table, sessions: async_sessionmaker[Any]) -> None:
        self.rows = _Rows(table)
        self.sessions = sessions


def run_slot(
    provider: LockProvider,
    schedule: str,
    planned_at: datetime,
    fn: Callable[[Lease], T] | Callable[[], T],
    *,
    ttl: Seconds = 60,
    at_least: Seconds = 0,
    slots: Slots | None = None,
) -> SlotRun[T]:
    """Run ``fn`` for one planned moment (aware) of a schedule, on one instance of those that try.

    The lock ``schedule:<schedule>:<planned_at>`` is held meanwhile, renewed every third of ``ttl``; ``fn``
    gets its ``Lease``, if it takes an argument.

    A lock keeps out who comes at the same time, not who comes late: once it is released, a late repeat runs.
    ``slots`` refuses that for good, by a unique row that is written before ``fn`` runs, proven by the lock.
    It is taken back where ``fn`` raises, so that the slot may be tried again, and stays where its runner
    dies: then the slot is not repeated, and its row has no ``finished_at``. Without ``slots``, ``at_least``
    (up to ``ttl``) keeps the key taken for that long, which helps against clocks that differ by less.

    Raises ``LockNotAcquired`` at once where another instance runs it, ``SlotDone`` (which is one) where it
    has run; otherwise what ``LockProvider.hold``, ``Lease.guard`` and ``fn`` raise.
    """
    work = BlockingWork(provider, slots.sessions if slots else None)
    return drive(_run(work, _Slot.checked(schedule, planned_at), fn, _Terms(ttl, at_least, slots)))


async def async_run_slot(
    provider: AsyncLockProvider,
    schedule: str,
    planned_at: datetime,
    fn: Callable[[AsyncLease], Awaitable[T]] | Callable[[], Awaitable[T]],
    *,
    ttl: Seconds = 60,
    at_least: Seconds = 0,
    slots: AsyncSlots | None = None,
) -> SlotRun[T]:
    """Run ``fn`` for one planned moment (aware) of a schedule, on one instance of those that try.

    The asyncio form of ``run_slot``. A cancelled ``fn`` counts as one whose runner died.
    """
    work = AsyncioWork(provider, slots.sessions if slots else None)
    return await _run(work, _Slot.checked(schedule, planned_at), fn, _Terms(ttl, at_least, slots))


@dataclass(frozen=True, slots=True)
class _Slot:
    schedule: str
    planned_at: datetime

    @classmethod
    def checked(cls, schedule: str, planned_at: datetime) -> _Slot:
        if planned_at.tzinfo is None:
            raise LockValidationError("planned_at must be aware", details={"argument": "planned_at"})
        return cls(schedule, planned_at.astimezone(UTC))

    @property
    def lock_key(self) -> str:
        return f"schedule:{self.schedule}:{self.planned_at:%Y-%m-%dT%H:%M:%S.%fZ}"


@dataclass(frozen=True, slots=True)
class _Terms:
    ttl: Seconds
    at_least: Seconds
    slots: Slots | AsyncSlots | None


async def _run(work: Work, slot: _Slot, fn: Callable[..., Any], terms: _Terms) -> SlotRun[Any]:
    rows = terms.slots.rows if terms.slots else None
    async with work.hold(slot.lock_key, ttl=terms.ttl, at_least=terms.at_least) as lease:
        token = lease.fencing_token
        if rows is None:
            result = await work.call(fitted(fn), lease)
        else:
            await work.guarded(lease, partial(rows.begin, slot=slot, token=token))
            result = await _recorded(work, lease, rows, slot, fn)
    return SlotRun(slot.schedule, slot.planned_at, slot.lock_key, token, result)


async def _recorded(work: Work, lease: Held, rows: _Rows, slot: _Slot, fn: Callable[..., Any]) -> Any:
    try:
        result = await work.call(fitted(fn), lease)
    except Exception as error:
        try:
            await work.guarded(lease, partial(rows.take_back, slot=slot, token=lease.fencing_token))
        except Exception as problem:  # noqa: BLE001 - what the function raised is what matters
            error.add_note(f"the slot stays taken, because its row could not be taken back: {problem}")
        raise
    await work.guarded(lease, partial(rows.finish, slot=slot, token=lease.fencing_token))
    return result


class _Rows:
    """The statements on the table, in a transaction that has proven the lock."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def begin(self, session: Session, *, slot: _Slot, token: int) -> None:
        columns = self._table.c
        present = session.execute(select(columns.fencing_token).where(self._is(slot))).scalar()
        if present is not None:
            raise _done(slot, present)
        row = {
            "schedule": slot.schedule,
            "planned_at": slot.planned_at,
            "fencing_token": token,
            "started_at": datetime.now(UTC),
        }
        try:
            session.execute(self._table.insert().values(row))
        except IntegrityError as error:  # written by somebody who went round the lock
            raise _done(slot, None) from error

    def finish(self, session: Session, *, slot: _Slot, token: int) -> None:
        ours = self._is(slot) & (self._table.c.fencing_token == token)
        session.execute(self._table.update().where(ours).values(finished_at=datetime.now(UTC)))

    def take_back(self, session: Session, *, slot: _Slot, token: int) -> None:
        session.execute(self._table.delete().where(self._is(slot), self._table.c.fencing_token == token))

    def _is(self, slot: _Slot) -> ColumnElement[bool]:
        columns = self._table.c
        return and_(columns.schedule == slot.schedule, columns.planned_at == slot.planned_at)


def _done(slot: _Slot, token: int | None) -> SlotDone:
    under = f" under token {token}" if token is not None else ""
    return SlotDone(
        f"the slot of {slot.schedule!r} at {slot.planned_at.isoformat()} was run already{under}",
        details={"lock_key": slot.lock_key, "present_token": token},
    )
