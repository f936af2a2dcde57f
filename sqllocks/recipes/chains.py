"""The rows of audit chains: an entry, its hash, the statements that append and verify."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    MetaData,
    RowMapping,
    Select,
    Table,
    Text,
    UniqueConstraint,
    select,
)
from sqlalchemy.dialects.mysql import LONGTEXT
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import Session

from sqllocks.dialects.base import REFUSALS
from sqllocks.errors import LockValidationError, TransactionConflict
from sqllocks.policy import checked_key
from sqllocks.recipes.canonical import canonical, digest
from sqllocks.runtime.statements import Faults
from sqllocks.schema import ByteString, Instant, to_microseconds

__all__ = [
    "GENESIS",
    "AuditEntry",
    "Break",
    "Chains",
    "Draft",
    "Verification",
    "audit_chain",
    "chain_of",
    "draft_of",
]

LOCKS = "audit:hash-chain:"
GENESIS = "0" * 64
"""What the first entry of a chain names as the one before."""
_PAGE = 1000
_VERSION = 1


def audit_chain(metadata: MetaData, *, name: str = "audit_chain", schema: str | None = None) -> Table:
    """Return the table of the chains, added to ``metadata``."""
    return Table(
        name,
        metadata,
        Column("chain", ByteString(255), primary_key=True),
        Column("sequence", BigInteger, primary_key=True, autoincrement=False),
        Column("previous", ByteString(64), nullable=False),
        Column("hash", ByteString(64), nullable=False),
        Column("recorded_at", Instant, nullable=False),
        Column("record", Text().with_variant(LONGTEXT(), "mysql", "mariadb"), nullable=False),
        UniqueConstraint("chain", "previous", name=f"uq_{name}_previous"),
        schema=schema,
        mysql_engine="InnoDB",
        mariadb_engine="InnoDB",
    )


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One entry as it is stored; ``record`` is the canonical JSON text that was hashed."""

    chain: str
    sequence: int
    previous: str
    hash: str
    recorded_at: datetime
    record: str

    @property
    def content(self) -> Any:
        """The record as it was given to ``append``."""
        return json.loads(self.record)

    @property
    def expected_hash(self) -> str:
        """The hash that this content must have."""
        instant = to_microseconds(self.recorded_at)
        return digest(_VERSION, self.chain, self.sequence, self.previous, instant, self.record)


@dataclass(frozen=True, slots=True)
class Break:
    """The first place where a chain is not as it was written."""

    sequence: int
    reason: str


@dataclass(frozen=True, slots=True)
class Verification:
    """What was found; true while nothing is broken. ``head`` is the last entry that is in order."""

    chain: str
    entries: int
    head: AuditEntry | None
    broken: Break | None

    def __bool__(self) -> bool:
        return self.broken is None


@dataclass(frozen=True, slots=True)
class Draft:
    """A record that has no place in its chain yet."""

    chain: str
    recorded_at: datetime
    record: str

    @property
    def lock_key(self) -> str:
        return LOCKS + self.chain

    def after(self, head: AuditEntry | None) -> AuditEntry:
        number, previous = (head.sequence + 1, head.hash) if head else (1, GENESIS)
        entry = AuditEntry(self.chain, number, previous, "", self.recorded_at, self.record)
        return replace(entry, hash=entry.expected_hash)


def chain_of(tenant: str | None) -> str:
    return "platform" if tenant is None else f"tenant:{tenant}"


def draft_of(record: Any, tenant: str | None, recorded_at: datetime | None) -> Draft:
    moment = datetime.now(UTC) if recorded_at is None else recorded_at
    if moment.tzinfo is None:
        raise LockValidationError("recorded_at must be aware", details={"argument": "recorded_at"})
    if tenant is not None:
        checked_key(tenant)
    return Draft(chain_of(tenant), moment.astimezone(UTC), canonical(record, argument="record"))


class Chains:
    """The statements on the table, in a transaction of the caller's."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def append(self, source: Session | Connection, draft: Draft) -> AuditEntry:
        """Write the entry after the newest one; the caller has proven the lock in this transaction."""
        try:
            # a statement of its own after the proof: it cannot see an older head than the last holder left
            entry = draft.after(self.head(source, draft.chain))
            source.execute(self._table.insert().values(**{c: getattr(entry, c) for c in self._columns()}))
        except DBAPIError as error:
            if isinstance(error, IntegrityError) or _is_conflict(source, error):
                raise _conflict(draft.chain, error) from error
            raise
        return entry

    def head(self, source: Session | Connection, chain: str) -> AuditEntry | None:
        columns = self._table.c
        newest = self._of(chain).order_by(columns.sequence.desc()).limit(1)
        row = source.execute(newest).mappings().one_or_none()
        return None if row is None else _entry(row)

    def verify(self, source: Session | Connection, chain: str, anchor: AuditEntry | None) -> Verification:
        count, head = 0, None
        while True:
            page = self._page(source, chain, head.sequence if head else 0)
            for entry in page:
                reason = _objection(entry, head, anchor)
                if reason is not None:
                    return Verification(chain, count, head, Break(entry.sequence, reason))
                count, head = count + 1, entry
            if len(page) < _PAGE:
                return Verification(chain, count, head, _cut_off(head, anchor))

    def _page(self, source: Session | Connection, chain: str, after: int) -> list[AuditEntry]:
        columns = self._table.c
        # pages instead of a cursor, so that a long chain keeps nothing open at the server
        query = self._of(chain).where(columns.sequence > after).order_by(columns.sequence).limit(_PAGE)
        return [_entry(row) for row in source.execute(query).mappings()]

    def _of(self, chain: str) -> Select[Any]:
        return select(self._table).where(self._table.c.chain == chain)

    def _columns(self) -> list[str]:
        return [column.name for column in self._table.columns]


def _entry(row: RowMapping) -> AuditEntry:
    return AuditEntry(
        row["chain"], row["sequence"], row["previous"], row["hash"], row["recorded_at"], row["record"]
    )


def _objection(entry: AuditEntry, before: AuditEntry | None, anchor: AuditEntry | None) -> str | None:
    """Return what is wrong with an entry, or ``None``."""
    number, previous = (before.sequence + 1, before.hash) if before else (1, GENESIS)
    if entry.sequence != number:
        return f"entry {number} is missing"
    if entry.previous != previous:
        return "it does not name the entry before it"
    if entry.hash != entry.expected_hash:
        return "its content is not what was hashed"
    if anchor is not None and entry.sequence == anchor.sequence and entry.hash != anchor.hash:
        return "it is not the entry that was noted elsewhere"
    return None


def _cut_off(head: AuditEntry | None, anchor: AuditEntry | None) -> Break | None:
    last = head.sequence if head else 0
    if anchor is None or last >= anchor.sequence:
        return None
    return Break(last + 1, f"the chain ends before entry {anchor.sequence}, which was noted elsewhere")


def _is_conflict(source: Session | Connection, error: DBAPIError) -> bool:
    engine = source.get_bind().engine if isinstance(source, Session) else source.engine
    return Faults(engine.url).fault(error, sent=True).kind in REFUSALS


def _conflict(chain: str, error: DBAPIError) -> TransactionConflict:
    unlocked = isinstance(error, IntegrityError)
    reason = "somebody appended to it without the lock" if unlocked else "another transaction was in the way"
    return TransactionConflict(
        f"could not append to the chain {chain!r}: {reason}. Roll this transaction back and run it again",
        details={"chain": chain, "lock_key": LOCKS + chain},
        retryable=True,
    )
