"""G. A guard proves a lease inside the transaction that writes, and pins it there."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sqllocks import BackendUnavailable, LockHandle, StaleFencingToken
from tests.conformance.calls import TTL
from tests.conformance.driving import Client
from tests.conformance.polling import throughout, until
from tests.conformance.processes import ProcessPool
from tests.conformance.subject import Subject
from tests.fencing.application import LEVELS, WAYS, Application

SHORT = (0.4, 1.6, 6.4)
"""Ttls of leases that are to be over soon: the next one where a busy machine was too slow for the last."""
WRITE = "UPDATE accounts SET balance = balance + 1 WHERE name = :name"


def soon_over(subject: Subject, prove: Callable[[LockHandle], object]) -> tuple[LockHandle, float]:
    """Return a lease that was proven while it was held, and its ttl."""
    for ttl in SHORT:
        handle = subject.a.acquire(subject.key(), ttl=ttl)
        try:
            prove(handle)
        except StaleFencingToken:
            if ttl == SHORT[-1]:
                raise
        else:
            break
    return handle, ttl


def taken(client: Client, key: str, ttl: float = TTL) -> bool:
    """Tell whether a contender gets the key; a file that is being written counts as held."""
    try:
        return client.acquire(key, ttl=ttl).acquired
    except BackendUnavailable as error:
        if "transaction" not in str(error):
            raise
        return False


@pytest.mark.parametrize("way", WAYS)
def test_a_guarded_write_is_committed(application: Application, subject: Subject, way: str) -> None:
    name = application.account(subject.key()) if subject.kind.table else ""
    handle = subject.a.acquire(subject.key(), ttl=TTL)
    with application.transaction(way) as transaction:
        transaction.guard(handle)
        transaction.execute(WRITE, name=name)
        transaction.guard(handle)
        transaction.commit()
    assert not subject.kind.table or application.balance(name) == 1


# here a connection does: the session's statements are the same, as the case above has shown
def test_c148_a_guarded_row_is_not_taken_past_its_ttl(application: Application, subject: Subject) -> None:
    with application.transaction("connection") as transaction:
        handle, ttl = soon_over(subject, transaction.guard)
        throughout(3 * ttl, lambda: not taken(subject.b, handle.lock_key))
        assert not taken(subject.b, handle.lock_key), "a busy machine may have looked once only"
        transaction.commit()
    later = subject.b.acquire(handle.lock_key, ttl=TTL)
    assert later.acquired is True
    assert later.fencing_token > handle.fencing_token


def test_c150_a_waiter_gets_the_key_when_the_pin_ends(application: Application, subject: Subject) -> None:
    with application.transaction() as transaction:
        handle, ttl = soon_over(subject, transaction.guard)
        waiting = subject.b.start("require_acquire", handle.lock_key, ttl=TTL, wait=60)
        throughout(2 * ttl, lambda: not waiting.done())
        transaction.rollback()
        assert waiting.result(30).acquired is True


def test_c150_a_row_pinned_by_another_process_is_held(
    application: Application, table_subject: Subject, processes: ProcessPool
) -> None:
    (other,) = processes.take(table_subject, 1)

    def refused() -> bool:
        try:
            lost = other.ask("call", method="acquire", arguments=[handle.lock_key], ttl=TTL)
        except BackendUnavailable:
            return table_subject.kind.server == "sqlite"
        return not lost.acquired

    with application.transaction() as transaction:
        handle, ttl = soon_over(table_subject, transaction.guard)
        assert throughout(2 * ttl, refused) >= 1
        until(lambda: table_subject.now() > handle.expires_at, what="the lease has expired")
        assert refused()
        transaction.commit()
    won = other.ask("call", method="acquire", arguments=[handle.lock_key], ttl=TTL)
    assert won.acquired is True


def test_c151_a_guard_in_a_savepoint_that_was_rolled_back_is_proven_again(
    application: Application, subject: Subject
) -> None:
    name = application.account(subject.key()) if subject.kind.table else ""
    with application.transaction() as transaction:
        if subject.kind.server != "sqlite":  # which lets nobody else write after this
            transaction.execute(WRITE, name=name)

        def rolled_back(handle: LockHandle) -> None:
            savepoint = transaction.savepoint()
            try:
                transaction.guard(handle)
            finally:
                savepoint.rollback()

        handle, _ = soon_over(subject, rolled_back)
        until(lambda: subject.now() > handle.expires_at, within=10, what="the lease has expired")
        if subject.kind.server == "postgresql":
            assert taken(subject.b, handle.lock_key) is True
            with pytest.raises(StaleFencingToken):
                transaction.guard(handle)
            return
        # elsewhere the lock outlives the savepoint, so nobody can have been quicker
        assert taken(subject.b, handle.lock_key) is False
        if subject.kind.table:
            transaction.guard(handle)
            return
        with pytest.raises(StaleFencingToken, match="expired"):
            transaction.guard(handle)


def test_c151_the_next_guard_pins_for_the_rest(application: Application, subject: Subject) -> None:
    name = application.account(subject.key()) if subject.kind.table else ""
    with application.transaction() as transaction:
        if subject.kind.server != "sqlite":  # which lets nobody else write after this
            transaction.execute(WRITE, name=name)

        def rolled_back_and_proven_again(handle: LockHandle) -> None:
            for ending in ("rollback", "commit"):
                savepoint = transaction.savepoint()
                transaction.guard(handle)
                getattr(savepoint, ending)()

        handle, _ = soon_over(subject, rolled_back_and_proven_again)
        until(lambda: subject.now() > handle.expires_at, within=10, what="the lease has expired")
        assert taken(subject.b, handle.lock_key) is False
        transaction.commit()
    assert taken(subject.b, handle.lock_key) is True


def test_a_taken_over_lease_is_stale_at_every_level(application: Application, subject: Subject) -> None:
    for level in LEVELS[subject.kind.server]:
        handle = subject.a.acquire(subject.key(), ttl=TTL)
        subject.expire(handle.lock_key)
        later = subject.b.acquire(handle.lock_key, ttl=TTL)
        assert later.acquired is True
        with application.transaction(isolation_level=level) as transaction:
            with pytest.raises(StaleFencingToken) as caught:
                transaction.guard(handle)
            error = caught.value
            assert error.code == "LOCK_STALE_TOKEN"
            assert error.details == {
                "lock_key": handle.lock_key,
                "fencing_token": handle.fencing_token,
                "present_token": later.fencing_token,
            }
            for part in (handle.lock_key, str(handle.fencing_token), str(later.fencing_token)):
                assert part in str(error)
            assert later.owner_token not in str(error)
        with application.transaction(isolation_level=level) as transaction:
            transaction.guard(later)


def test_an_expired_lease_is_stale(application: Application, subject: Subject) -> None:
    handle = subject.a.acquire(subject.key(), ttl=TTL)
    subject.expire(handle.lock_key)
    with application.transaction() as transaction, pytest.raises(StaleFencingToken, match="expired"):
        transaction.guard(handle)


def test_a_released_lease_is_stale(application: Application, subject: Subject) -> None:
    handle = subject.a.acquire(subject.key(), ttl=TTL)
    subject.a.release(handle.lock_key, owner_token=handle.owner_token)
    with application.transaction() as transaction, pytest.raises(StaleFencingToken, match="released"):
        transaction.guard(handle)


def test_a_broken_lease_is_stale(application: Application, subject: Subject) -> None:
    handle = subject.a.acquire(subject.key(), ttl=TTL)
    assert subject.b.break_lock(handle.lock_key) is True
    with application.transaction() as transaction, pytest.raises(StaleFencingToken, match="broken"):
        transaction.guard(handle)


def test_a_purged_lease_is_stale(application: Application, table_subject: Subject) -> None:
    handle = table_subject.a.acquire(table_subject.key(), ttl=TTL)
    table_subject.observer.rows("DELETE FROM core_locks WHERE lock_key = :key", key=handle.lock_key)
    with application.transaction() as transaction:
        with pytest.raises(StaleFencingToken, match="or this session is on another database") as caught:
            transaction.guard(handle)
        assert caught.value.details["present_token"] is None


def test_the_same_owner_token_does_not_prove_an_older_grant(
    application: Application, subject: Subject
) -> None:
    key = subject.key()
    older = subject.a.acquire(key, ttl=TTL, owner_token="me")
    subject.expire(key)
    newer = subject.a.acquire(key, ttl=TTL, owner_token="me")
    with application.transaction() as transaction:
        with pytest.raises(StaleFencingToken):
            transaction.guard(older)
        transaction.rollback()
        transaction.guard(newer)


def test_own_renewal_and_release_pass_the_guard(application: Application, subject: Subject) -> None:
    if subject.kind.server not in {"postgresql", "memory"}:
        pytest.skip("the guard stops them there, so they wait for its transaction")
    handle = subject.a.acquire(subject.key(), ttl=TTL)
    with application.transaction() as transaction:
        transaction.guard(handle)
        longer = subject.a.extend(handle.lock_key, owner_token=handle.owner_token, ttl=2 * TTL)
        assert longer is not None
        assert longer.expires_at > handle.expires_at
        assert subject.a.release(handle.lock_key, owner_token=handle.owner_token) is True
        assert subject.b.locked(handle.lock_key) is False
        assert taken(subject.b, handle.lock_key) is False, "free, but pinned until the transaction ends"
        transaction.commit()
    assert taken(subject.b, handle.lock_key) is True


def test_an_operator_cannot_break_what_is_pinned(application: Application, subject: Subject) -> None:
    handle = subject.a.acquire(subject.key(), ttl=TTL)
    with application.transaction() as transaction:
        transaction.guard(handle)
        with pytest.raises(BackendUnavailable) as caught:
            subject.b.break_lock(handle.lock_key)
        assert caught.value.details["outcome"] == "pending"
        transaction.commit()
    assert subject.b.break_lock(handle.lock_key) is True
