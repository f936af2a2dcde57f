"""The outbox: one dispatcher at a time, at least once, with the same idempotency key."""

from __future__ import annotations

from collections import Counter

import pytest
from sqlalchemy import create_engine, select
from sqlalchemy.orm import sessionmaker
from sqlalchemy.pool import StaticPool

from sqllocks import MemoryLockProvider
from sqllocks.recipes.outbox import LOCK_KEY, Dispatched, Message, Outbox
from tests.conformance.kinds import Kind
from tests.conformance.polling import until
from tests.recipes import delivering
from tests.recipes.tables import metadata, outbox, parts_of
from tests.scenarios.arena import SERVERS, TABLE_KINDS, Arena
from tests.scenarios.workers import at_once

BUSY = Dispatched(0, 0, 0)


@pytest.mark.parametrize("kind", TABLE_KINDS, ids=[kind.name for kind in TABLE_KINDS])
def test_c076_a_busy_dispatcher_claims_nothing(place: Arena, kind: Kind) -> None:
    target = place.target(kind)
    parts = parts_of(target)
    delivering.add(target, 3)
    with place.client.provider.hold(LOCK_KEY, ttl=30):
        assert parts.run(lambda: parts.outbox.dispatch(delivering.delivery(parts))) == BUSY
        assert place.observer.rows("SELECT sum(attempts) FROM outbox") == [(0,)]
    assert parts.run(lambda: parts.outbox.dispatch(delivering.delivery(parts), batch=2)) == Dispatched(
        2, 2, 0
    )
    assert place.client.locked(LOCK_KEY) is False
    assert parts.run(lambda: parts.outbox.dispatch(delivering.delivery(parts))) == Dispatched(1, 1, 0)
    assert parts.run(lambda: parts.outbox.dispatch(delivering.delivery(parts))) == BUSY


@pytest.mark.parametrize("server", SERVERS)
def test_each_message_is_delivered_once_by_several_processes(place: Arena, server: str) -> None:
    targets = place.targets(3)
    workers = place.workers(targets)
    keys = delivering.add(place.target(), 12)
    answers = at_once(workers, delivering.dispatch_at, targets, [4] * 3, batch=3)
    assert all(isinstance(answer, list) for answer in answers), answers
    parts = parts_of(place.target())
    until(lambda: parts.outbox.dispatch(delivering.delivery(parts)) == BUSY, within=10)
    delivered = place.observer.rows("SELECT name, token FROM effects ORDER BY id")
    assert Counter(name for name, _ in delivered) == Counter(keys)
    tokens = [token for _, token in delivered]
    assert tokens == sorted(tokens)


@pytest.mark.parametrize("server", ["postgresql"])
def test_a_killed_dispatchers_message_is_delivered_again_under_its_key(place: Arena, server: str) -> None:
    [worker] = place.workers([place.target()])
    [key] = delivering.add(place.target(), 1)
    with pytest.raises(AssertionError, match="ended in the middle"):
        worker.run(delivering.dispatch_and_die, place.target())
    parts = parts_of(place.target())
    # its lease has to run out first
    until(lambda: parts.outbox.dispatch(delivering.delivery(parts)).delivered == 1, within=15)
    delivered = place.observer.rows("SELECT name, token FROM effects ORDER BY id")
    assert [name for name, _ in delivered] == [key, key]
    assert delivered[0][1] < delivered[1][1]


def test_a_message_that_fails_does_not_hold_the_others_up_and_is_left_in_the_end() -> None:
    engine = create_engine("sqlite://", poolclass=StaticPool)
    metadata.create_all(engine)
    sessions = sessionmaker(engine)
    box = Outbox(MemoryLockProvider(), outbox, sessions, max_attempts=2)
    with sessions.begin() as session:
        box.add(session, "good", 1)
        box.add(session, "bad", 2, idempotency_key="bad")
    seen: list[tuple[str, int]] = []

    def deliver(message: Message) -> None:
        seen.append((message.topic, message.attempt))
        if message.topic == "bad":
            raise ConnectionError("the receiver is away")

    assert box.dispatch(deliver) == Dispatched(2, 1, 1)
    assert box.dispatch(deliver) == Dispatched(1, 0, 1)
    assert box.dispatch(deliver) == Dispatched(0, 0, 0)
    assert seen == [("good", 1), ("bad", 1), ("bad", 2)]
    with sessions() as session:
        left = session.execute(select(outbox).where(outbox.c.delivered_at.is_(None))).one()
        assert (left.idempotency_key, left.attempts) == ("bad", 2)
    engine.dispose()
