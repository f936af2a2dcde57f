"""Leases that end with the caller's transaction, and kept leases that a transaction guards."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session

from sqllocks import BackendUnavailable, LeaseLost, LockNotAcquired, LockTimeout, StaleFencingToken
from tests.conformance.polling import Stopwatch, until, with_time_enough
from tests.conformance.subject import Subject
from tests.fencing.application import Account, Application, Transaction


def hold(application: Application, transaction: Transaction, key: str, **options: Any) -> Any:
    """Lease a key until the transaction ends."""
    provider = application.subject.a.provider
    values = {"ttl": 30, **options}
    return transaction.run(lambda: provider.hold_for_transaction(transaction.source, key, **values))


def seen_by_others(subject: Subject, key: str) -> bool:
    """Tell whether somebody else finds the key held (on SQLite: the file locked, which is the same)."""
    if subject.kind.server == "sqlite":
        return not acquirable(subject, key)
    return subject.b.locked(key)


def acquirable(subject: Subject, key: str) -> bool:
    try:
        handle = subject.b.acquire(key, ttl=30)
    except BackendUnavailable:
        return False
    if handle:
        subject.b.release(key, owner_token=handle.owner_token)
    return bool(handle)


@pytest.mark.parametrize("end", ["commit", "rollback", "close"])
def test_c079_it_is_held_until_the_transaction_ends(
    application: Application, subject: Subject, end: str
) -> None:
    key = subject.key()
    with application.transaction() as transaction:
        handle = hold(application, transaction, key)
        assert handle.acquired
        assert seen_by_others(subject, key)
        getattr(transaction, end)()
        until(lambda: not subject.b.locked(key), within=2)
        assert acquirable(subject, key)


def test_c080_again_in_the_same_transaction_is_the_same_lease(
    application: Application, subject: Subject
) -> None:
    key = subject.key()
    with application.transaction() as transaction:
        first = hold(application, transaction, key)
        assert hold(application, transaction, key) == first
        transaction.commit()
        second = hold(application, transaction, key)
        assert second.fencing_token > first.fencing_token
        transaction.rollback()
    until(lambda: not subject.b.locked(key), within=2)


def test_c080_another_tenant_is_not_held_up(application: Application, network_subject: Subject) -> None:
    one, other = network_subject.key("a"), network_subject.key("b")
    with application.transaction() as first, application.transaction() as second:
        hold(application, first, one)
        watch = Stopwatch()
        assert hold(application, second, other).acquired
        assert watch.seconds < 10  # not the ttl of the other one
        with pytest.raises(LockNotAcquired):
            hold(application, second, one)
        with pytest.raises(LockTimeout):
            hold(application, second, one, wait=0.3)


def test_c079_savepoints_do_not_free_it(application: Application, subject: Subject) -> None:
    key = subject.key()
    with application.transaction() as transaction:
        transaction.execute("SELECT 1")
        savepoint = transaction.savepoint()
        first = hold(application, transaction, key)
        savepoint.rollback()
        again = hold(application, transaction, key)
        assert again.fencing_token >= first.fencing_token
        assert seen_by_others(subject, key)
        transaction.commit()
    until(lambda: not subject.b.locked(key), within=2)


def test_it_is_kept_past_its_ttl_while_the_transaction_is_open(
    application: Application, subject: Subject
) -> None:
    def attempt(ttl: float) -> None:
        key, watch = subject.key(), Stopwatch()
        with application.transaction() as transaction:
            handle = hold(application, transaction, key, ttl=ttl)
            until(lambda: watch.seconds > 3 * ttl, within=60)
            assert not acquirable(subject, key)
            assert hold(application, transaction, key, ttl=ttl) == handle
            transaction.commit()
        until(lambda: not subject.b.locked(key), within=2)

    with_time_enough(attempt)


def test_it_is_released_after_an_outer_connections_transaction(
    application: Application, blocking_table_subject: Subject
) -> None:
    key, engine = blocking_table_subject.key(), application.engine()
    with engine.connect() as connection, connection.begin() as outer:  # type: ignore[union-attr]
        if blocking_table_subject.kind.server == "sqlite":
            # the module sends no BEGIN before a savepoint, and then the savepoint is the transaction
            connection.exec_driver_sql("BEGIN")
        session = Session(connection, join_transaction_mode="create_savepoint")
        blocking_table_subject.a.provider.hold_for_transaction(session, key, ttl=30)
        session.commit()
        session.close()
        assert seen_by_others(blocking_table_subject, key)
        outer.commit()
        assert not blocking_table_subject.b.locked(key)


def test_a_failing_commit_frees_it(application: Application, network_subject: Subject) -> None:
    key = network_subject.key()
    with application.transaction("connection") as transaction:
        hold(application, transaction, key)
        kill_own_session(transaction, network_subject)
        with pytest.raises(Exception, match=r".+"):
            transaction.commit()
    until(lambda: not network_subject.b.locked(key), within=3)


def kill_own_session(transaction: Transaction, subject: Subject) -> None:
    if subject.kind.server == "postgresql":
        own = transaction.execute("SELECT pg_backend_pid()").scalar_one()
        subject.observer.rows("SELECT pg_terminate_backend(:pid)", pid=own)
    else:
        own = transaction.execute("SELECT connection_id()").scalar_one()
        subject.observer.rows(f"KILL {int(own)}")


def test_wrong_arguments(application: Application, subject: Subject) -> None:
    with pytest.raises(TypeError):
        hold(application, Transaction(object(), None, application.loop), subject.key())


# -- kept leases that a transaction guards


def enter(subject: Subject, manager: Any) -> Any:
    return subject.run(manager.__aenter__()) if subject.kind.asyncio else manager.__enter__()


def leave(subject: Subject, manager: Any) -> None:
    if subject.kind.asyncio:
        subject.run(manager.__aexit__(None, None, None))
    else:
        manager.__exit__(None, None, None)


def test_c148_a_guarded_lease_goes_on_past_three_ttls(application: Application, subject: Subject) -> None:
    def attempt(ttl: float) -> None:
        key, watch = subject.key(), Stopwatch()
        manager = subject.a.provider.hold(key, ttl=ttl)
        lease = enter(subject, manager)
        try:
            with application.transaction() as transaction:
                transaction.run(lambda: lease.guard(transaction.source))
                until(lambda: watch.seconds > 3 * ttl, within=60)
                lease.check()
                assert not acquirable(subject, key)
                transaction.run(lambda: lease.guard(transaction.source))
                transaction.commit()
            lease.check()
            assert subject.b.locked(key) is True
        finally:
            leave(subject, manager)
        assert subject.b.locked(key) is False

    with_time_enough(attempt)


def test_c149_a_release_before_the_transaction_ends_does_not_wait(
    application: Application, subject: Subject
) -> None:
    key = subject.key()
    handle = subject.a.acquire(key, ttl=30)
    provider = subject.a.provider
    with application.transaction() as transaction:
        transaction.run(lambda: provider.guard(transaction.source, handle))
        watch = Stopwatch()
        assert subject.a.release(key, owner_token=handle.owner_token) is True
        assert watch.seconds < 0.5
        assert not acquirable(subject, key)
        transaction.commit()
    until(lambda: acquirable(subject, key), within=2)


def test_c149_leaving_the_block_inside_the_transaction(application: Application, subject: Subject) -> None:
    key = subject.key()
    manager = subject.a.provider.hold(key, ttl=30)
    lease = enter(subject, manager)
    with application.transaction() as transaction:
        transaction.run(lambda: lease.guard(transaction.source))
        watch = Stopwatch()
        leave(subject, manager)
        assert watch.seconds < 0.5
        assert not acquirable(subject, key)
        transaction.commit()
    until(lambda: acquirable(subject, key), within=2)


def test_c055_the_stale_holder_cannot_write(application: Application, subject: Subject) -> None:
    key = subject.key()
    manager = subject.a.provider.hold(key, ttl=30)
    lease = enter(subject, manager)
    stale = subject.a.inspect(key)
    assert stale is not None
    assert subject.b.break_lock(key)
    newer = subject.b.acquire(key, ttl=30)
    assert newer.fencing_token > lease.fencing_token
    with application.transaction() as transaction, pytest.raises((StaleFencingToken, LeaseLost)):
        transaction.run(lambda: lease.guard(transaction.source))
    with pytest.raises(LeaseLost):
        leave(subject, manager)
    assert subject.b.release(key, owner_token=newer.owner_token) is True


def test_fenced_of_a_lease(application: Application, subject: Subject) -> None:
    key = subject.key()
    manager = subject.a.provider.hold(key, ttl=30)
    lease = enter(subject, manager)
    with application.transaction() as transaction:
        transaction.execute("INSERT INTO accounts (name, balance) VALUES (:name, 0)", name=key)
        fenced = update(Account).where(Account.name == key, lease.fenced()).values(balance=7)
        assert transaction.execute(fenced).rowcount == 1
        transaction.commit()
    leave(subject, manager)
