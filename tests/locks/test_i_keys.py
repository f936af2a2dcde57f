"""I. Names, rows and keys: leases, session locks and leaders of one key exclude each other.

On one driver of each server: the rows are the same for all of them.
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from sqllocks import BackendUnsupported, LeaseLost, LockError, SchemaMissing
from sqllocks.naming import advisory_id, lock_name
from tests.conformance.polling import until
from tests.locks.candidates import Candidate
from tests.locks.subject import QUICK, LockSubject

LIMIT = 64


def test_c105_an_id_is_the_same_every_time_and_another_with_another_prefix() -> None:
    ids = [advisory_id("job", prefix=prefix, naming="sha256") for prefix in ("", "", "other", "a")]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3


@pytest.mark.parametrize("naming", ["sha256", "fnv1a64"])
def test_c106_a_name_fits_and_tells_long_keys_apart(naming: str) -> None:
    keys = ["k" * 255, "k" * 254 + "l", "ü" * 255, "ü" * 254 + "v", "😀" * 100, "short"]
    names = [lock_name(key, prefix="", naming=naming, database="d") for key in keys]
    assert len(set(names)) == len(keys)
    for name in names:
        assert len(name) <= LIMIT
        assert len(name.encode()) <= 192
    assert names == [lock_name(key, prefix="", naming=naming, database="d") for key in keys]


def test_c107_keys_are_told_apart_byte_for_byte(server_subject: LockSubject) -> None:
    subject = server_subject
    base = uuid.uuid4().hex[:8]
    keys = [f"{base}{each}" for each in ("Job", "job", "job ", "Jób", "jöb" * 80, "jöb" * 79 + "job")]
    locks = [subject.do(subject.one.try_lock(key)) for key in keys]
    assert all(locks)
    assert [lock.key for lock in locks] == keys
    assert all(subject.do(subject.two.try_lock(key)) is None for key in keys)
    assert all(subject.do(lock.unlock()) for lock in locks)


def test_c108_two_databases_of_one_server_do_not_share_names() -> None:
    one, two = (lock_name("job", prefix="", naming="sha256", database=each) for each in ("one", "two"))
    assert one != two


def test_c156_lockers_with_other_names_exclude_each_other(server_subject: LockSubject) -> None:
    subject = server_subject
    others = [subject.locker(naming="fnv1a64"), subject.locker(prefix="other"), subject.one]
    key = subject.key()
    for holder in others:
        lock = subject.do(holder.try_lock(key))
        assert lock is not None
        for other in others:
            assert subject.do(other.try_lock(key)) is None
        if holder is not others[1]:  # what it got at the server for a moment was given back
            assert subject.carrier(key, prefix="other") is None
        assert subject.do(lock.unlock()) is True


def test_leases_and_session_locks_of_one_key_exclude_each_other(server_subject: LockSubject) -> None:
    subject = server_subject
    leases = subject.leases(holder="leases")
    key = subject.key()
    handle = subject.do(leases.acquire(key, ttl=30))
    assert subject.do(subject.one.try_lock(key)) is None
    info = subject.do(subject.one.inspect(key))
    assert (info.kind, info.holder, info.held) == ("lease", "leases", True)
    waiter = subject.start(lambda: subject.one.lock(key, wait=20))
    assert subject.do(leases.release(key, owner_token=handle.owner_token)) is True
    lock = waiter.result(20)
    assert lock.fencing_token > handle.fencing_token
    assert subject.do(leases.acquire(key, ttl=30)).acquired is False
    info = subject.do(leases.inspect(key))
    assert (info.kind, info.holder, info.fencing_token) == ("session", "one", lock.fencing_token)
    later = subject.start(lambda: leases.require_acquire(key, ttl=30, wait=20))
    assert subject.do(lock.unlock()) is True
    won = later.result(20)
    assert won.fencing_token > lock.fencing_token
    assert {info.kind for info in subject.do(subject.one.list_locks(prefix=key))} == {"lease"}
    assert subject.do(leases.release(key, owner_token=won.owner_token)) is True


@pytest.mark.parametrize("strategy", ["session", "lease"])
def test_a_leader_and_a_lock_of_one_key_exclude_each_other(
    server_subject: LockSubject, strategy: str
) -> None:
    subject = server_subject
    key = subject.key()
    elector = subject.elector(strategy=strategy, prefix="", retry=0.1, lease=5, heartbeat=1)
    with Candidate(subject, elector, key) as candidate:
        candidate.leads()
        assert subject.do(subject.one.try_lock(key)) is None
        kind = "lease" if strategy == "lease" else "session"
        assert subject.do(elector.leader(key)).kind == kind
        candidate.stop()
    lock = subject.do(subject.one.lock(key, wait=10))
    assert lock.fencing_token > candidate.terms[0].fencing_token
    with Candidate(subject, elector, key) as candidate:
        assert subject.do(elector.leader(key)).fencing_token == lock.fencing_token
        assert candidate.terms == []
        assert subject.do(lock.unlock()) is True
        candidate.leads()


def test_an_elector_puts_its_prefix_before_its_keys(server_subject: LockSubject) -> None:
    subject = server_subject
    key = subject.key()
    elector = subject.elector(retry=0.1)
    with Candidate(subject, elector, key) as candidate:
        candidate.leads()
        assert subject.do(elector.leader(key)).lock_key == key
        assert candidate.terms[0].key == key
        listed = subject.do(subject.one.list_locks(prefix="election:" + key))
        assert [info.lock_key for info in listed] == ["election:" + key]
        lock = subject.do(subject.one.try_lock(key))
        assert subject.do(lock.unlock()) is True


def test_an_operator_can_break_a_session_lock(server_subject: LockSubject) -> None:
    subject = server_subject
    leases, locker = subject.leases(), subject.locker(**QUICK)
    first, second = subject.key("a"), subject.key("b")
    lock, other = (subject.do(locker.try_lock(key)) for key in (first, second))
    assert subject.do(leases.break_lock(first)) is True
    until(lambda: lock.lost, within=5, what="the heartbeat")
    assert subject.carrier(first) is None
    assert subject.do(other.held()) is True  # the session was not in doubt
    assert subject.do(leases.break_lock(second)) is True
    assert subject.do(other.unlock()) is False
    assert subject.carrier(second) is None
    for key in (first, second):
        after = subject.do(subject.two.try_lock(key))
        assert subject.do(after.unlock()) is True


def test_c154_no_lock_is_handed_out_without_its_row(server_subject: LockSubject) -> None:
    subject = server_subject
    key = subject.key()
    locker = subject.locker(table="no_such_table")
    with pytest.raises(SchemaMissing):
        subject.do(locker.try_lock(key))
    with pytest.raises(SchemaMissing):
        subject.do(locker.lock(key, wait=5))
    assert subject.carrier(key) is None
    lock = subject.do(subject.one.try_lock(key))
    assert subject.do(lock.unlock()) is True


def test_a_table_that_goes_away_strands_no_lock(server_subject: LockSubject) -> None:
    subject = server_subject
    locker = subject.locker(table="short_lived", **QUICK)
    subject.do(locker.create_table())
    key = subject.key()
    lock = subject.do(locker.try_lock(key))
    subject.observer.rows("DROP TABLE short_lived")
    with pytest.raises(LockError):
        subject.do(lock.unlock())
    assert subject.carrier(key) is None


def test_c154_a_pinned_row_counts_as_busy_and_the_lock_is_given_back(server_subject: LockSubject) -> None:
    subject = server_subject
    key = subject.key()
    lock = subject.do(subject.one.try_lock(key))
    assert subject.do(lock.unlock()) is True
    with subject.observer.holding(key) as foreign:
        assert subject.do(subject.two.try_lock(key)) is None
        assert subject.carrier(key) is None
        waiter = subject.start(lambda: subject.two.lock(key, wait=20))
        assert subject.do(subject.one.try_lock(key)) is None
        foreign.end()
    assert subject.do(waiter.result(20).unlock()) is True


def test_without_fencing_no_table_is_needed(server_subject: LockSubject) -> None:
    subject = server_subject
    one, two = (subject.locker(fencing=False, table="no_such_table", **QUICK) for _ in range(2))
    key = subject.key()
    lock = subject.do(one.try_lock(key))
    assert lock.fencing_token is None
    assert subject.do(two.try_lock(key)) is None
    assert subject.do(lock.held()) is True
    assert subject.do(one.inspect(key)) is None
    assert subject.do(one.list_locks()) == []
    with pytest.raises(BackendUnsupported, match="fencing=False"):
        guard_something(subject, lock)
    waiter = subject.start(lambda: two.lock(key, wait=20))
    assert subject.do(lock.unlock()) is True
    other = waiter.result(20)
    session = subject.carrier(key)
    assert session is not None
    subject.kill(session)
    until(lambda: other.lost, within=5, what="the loss")
    with pytest.raises(LeaseLost):
        other.check()
    again = subject.do(one.lock(key, wait=10))
    assert again.fencing_token is None
    assert subject.do(again.unlock()) is True


def guard_something(subject: LockSubject, lock: Any) -> None:
    engine: Any = subject.engine()
    if not subject.kind.asyncio:
        with engine.connect() as connection:
            lock.guard(connection)
        return

    async def guard() -> None:
        async with engine.connect() as connection:
            await lock.guard(connection)

    subject.run(guard())
