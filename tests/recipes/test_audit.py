"""Audit entries, their canonical form, and a verifier that names the first break."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import create_engine, delete, select, update
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import StaticPool

from sqllocks import AsyncMemoryLockProvider, LockValidationError, MemoryLockProvider, TransactionConflict
from sqllocks.recipes.audit import GENESIS, AsyncAuditChain, AuditChain, AuditEntry
from tests.recipes.tables import audit, metadata

chains = AuditChain(MemoryLockProvider(), audit)


@pytest.fixture
def session() -> Iterator[Session]:
    engine = create_engine("sqlite://", poolclass=StaticPool)
    metadata.create_all(engine)
    with Session(engine) as session:
        yield session
    engine.dispose()


def test_entries_are_numbered_and_linked(session: Session) -> None:
    first = chains.append(session, {"b": 1, "a": [None, "ü"]}, tenant="t")
    second = chains.append(session, "text", tenant="t")
    platform = chains.append(session, {}, recorded_at=datetime(2020, 2, 3, 4, 5, 6, 789, tzinfo=UTC))
    session.commit()
    assert (first.sequence, first.previous) == (1, GENESIS)
    assert (second.sequence, second.previous) == (2, first.hash)
    assert first.record == '{"a":[null,"\\u00fc"],"b":1}'
    assert first.content == {"b": 1, "a": [None, "ü"]}
    assert (platform.chain, platform.sequence) == ("platform", 1)
    assert chains.head(session, tenant="t") == second
    assert chains.head(session) == platform


def test_the_hash_stays_as_it_is_defined() -> None:
    entry = AuditEntry("tenant:t", 1, GENESIS, "", datetime(2020, 1, 1, tzinfo=UTC), '{"a":1}')
    assert entry.expected_hash == "a02e00fe2c5b20ad3b4ba702914af1006fcc50891932ec7b57f65d47d6da5d2c"


@pytest.mark.parametrize("record", [{1: "a"}, float("nan"), {"a": {"b": {2: 3}}}, object(), {"d": {1, 2}}])
def test_what_json_does_not_have_is_refused(session: Session, record: Any) -> None:
    with pytest.raises(LockValidationError):
        chains.append(session, record)


def test_a_naive_moment_is_refused(session: Session) -> None:
    with pytest.raises(LockValidationError):
        chains.append(session, {}, recorded_at=datetime(2020, 1, 1))


def test_a_writer_without_the_lock_cannot_fork_the_chain(session: Session) -> None:
    entry = chains.append(session, {"n": 1}, tenant="t")
    values = {column.name: getattr(entry, column.name) for column in audit.columns}
    session.execute(audit.insert().values({**values, "sequence": 0, "previous": entry.hash}))
    with pytest.raises(TransactionConflict) as caught:
        chains.append(session, {"n": 2}, tenant="t")
    assert caught.value.retryable


@pytest.fixture
def written(session: Session) -> list[AuditEntry]:
    entries = [chains.append(session, {"n": number}, tenant="t") for number in range(1, 6)]
    session.commit()
    return entries


def test_an_untouched_chain_is_in_order(session: Session, written: list[AuditEntry]) -> None:
    found = chains.verify(session, tenant="t", anchor=written[3])
    assert found
    assert (found.entries, found.head, found.broken) == (5, written[-1], None)
    empty = chains.verify(session, tenant="other")
    assert empty
    assert (empty.entries, empty.head) == (0, None)


@pytest.mark.parametrize(
    ("change", "sequence", "reason"),
    [
        (update(audit).where(audit.c.sequence == 3).values(record='{"n":9}'), 3, "not what was hashed"),
        (
            update(audit).where(audit.c.sequence == 2).values(recorded_at=datetime(2020, 1, 1, tzinfo=UTC)),
            2,
            "hashed",
        ),
        (delete(audit).where(audit.c.sequence == 2), 3, "entry 2 is missing"),
        (delete(audit).where(audit.c.sequence == 1), 2, "entry 1 is missing"),
        (update(audit).where(audit.c.sequence == 4).values(previous=GENESIS[:-1] + "1"), 4, "does not name"),
        (delete(audit).where(audit.c.sequence >= 4), 4, "ends before entry 5"),
    ],
)
def test_the_first_break_is_named(
    session: Session, written: list[AuditEntry], change: Any, sequence: int, reason: str
) -> None:
    session.execute(change)
    found = chains.verify(session, tenant="t", anchor=written[-1])
    assert not found
    assert found.broken is not None
    assert found.broken.sequence == sequence
    assert reason in found.broken.reason
    assert found.entries == (sequence - 1 if "missing" not in reason else sequence - 2)


def test_a_rewritten_chain_is_told_by_an_entry_noted_elsewhere(
    session: Session, written: list[AuditEntry]
) -> None:
    session.execute(delete(audit).where(audit.c.sequence >= 3))
    for number in (3, 4, 5):
        chains.append(session, {"forged": number}, tenant="t")
    assert chains.verify(session, tenant="t")
    found = chains.verify(session, tenant="t", anchor=written[-1])
    assert found.broken is not None
    assert found.broken.sequence == 5


def test_a_chain_of_several_pages(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqllocks.recipes.chains._PAGE", 2)
    for number in range(4):
        chains.append(session, {"n": number})
    assert chains.verify(session).entries == 4
    assert len(session.execute(select(audit)).all()) == 4


@pytest.mark.anyio
async def test_the_asyncio_form() -> None:
    engine = create_async_engine("sqlite+aiosqlite://", poolclass=StaticPool)
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
    async with AsyncMemoryLockProvider() as locks, AsyncSession(engine) as session:
        chain = AsyncAuditChain(locks, audit)
        first = await chain.append(session, {"n": 1}, tenant="t")
        second = await chain.append(session, {"n": 2}, tenant="t")
        await session.commit()
        assert second.previous == first.hash
        assert await chain.head(session, tenant="t") == second
        assert (await chain.verify(session, tenant="t", anchor=first)).entries == 2
    async with engine.begin() as connection:
        chain = AsyncAuditChain(AsyncMemoryLockProvider(), audit)
        assert (await chain.append(connection, {"n": 3}, tenant="t")).sequence == 3
    await engine.dispose()
