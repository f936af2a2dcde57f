"""The proof as a condition of the statement that writes, and the check that any resource can make."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest
from sqlalchemy import delete, func, insert, literal, select, update
from sqlalchemy.dialects import mssql

from sqllocks import BackendUnsupported, LockHandle, LockValidationError, StaleFencingToken
from sqllocks.fencing import Guards, accepts
from tests.conformance.calls import TTL
from tests.conformance.polling import until
from tests.conformance.subject import Subject
from tests.fencing.application import LEVELS, WAYS, Account, Application, Transaction
from tests.fencing.test_guard import soon_over, taken
from tests.fencing.test_snapshots import waiting

ACCOUNTS: Any = Account.__table__


def stale(subject: Subject) -> LockHandle:
    """Return a handle whose lease was taken over."""
    handle = subject.a.acquire(subject.key(), ttl=TTL)
    subject.expire(handle.lock_key)
    assert subject.b.acquire(handle.lock_key, ttl=TTL).acquired is True
    return handle


def writes(name: str, condition: Any) -> dict[str, Any]:
    """Return statements that write one row where the condition holds."""
    new = select(literal(name + ":new"), literal(5), literal(None)).where(condition)
    copy = select(ACCOUNTS.c.name + literal(":copy"), ACCOUNTS.c.balance, ACCOUNTS.c.seen)
    columns = ["name", "balance", "seen"]
    return {
        "core update": update(ACCOUNTS).where(ACCOUNTS.c.name == name, condition).values(balance=7),
        "orm update": update(Account).where(Account.name == name, condition).values(balance=8),
        "insert values": insert(ACCOUNTS).from_select(columns, new),
        "insert select": insert(ACCOUNTS).from_select(
            columns, copy.where(ACCOUNTS.c.name == name, condition)
        ),
        "orm delete": delete(Account).where(Account.name == name + ":new", condition),
        "core delete": delete(ACCOUNTS).where(ACCOUNTS.c.name == name, condition),
    }


def changed(transaction: Transaction, statement: Any) -> int:
    """Return how many rows a statement changed, inserted ones too."""
    return int(transaction.execute(statement.execution_options(preserve_rowcount=True)).rowcount)


@pytest.mark.parametrize("way", WAYS)
def test_each_kind_of_write(application: Application, table_subject: Subject, way: str) -> None:
    for level in LEVELS[table_subject.kind.server]:
        name = application.account(table_subject.key())
        good, bad = table_subject.a.acquire(name, ttl=TTL), stale(table_subject)
        with application.transaction(way, isolation_level=level) as transaction:
            kinds = writes(name, application.guards.fenced(good)).items()
            for (what, passes), refused in zip(
                kinds, writes(name, application.guards.fenced(bad)).values(), strict=True
            ):
                if way == "connection" and what.startswith("orm"):
                    continue
                assert changed(transaction, refused) == 0, (level, what)
                assert changed(transaction, passes) == 1, (level, what)
            transaction.commit()


def test_in_memory_it_is_a_constant(application: Application, memory_subject: Subject) -> None:
    bad = stale(memory_subject)  # moves the clock
    good = memory_subject.a.acquire(memory_subject.key(), ttl=TTL)
    with application.transaction() as transaction:
        for handle, expected in ((good, 1), (bad, 0)):
            statement = select(func.count()).select_from(select(literal(1).label("one")).subquery())
            found = transaction.execute(statement.where(application.guards.fenced(handle)))
            assert found.scalar_one() == expected


def test_what_is_not_held_is_refused(application: Application, table_subject: Subject) -> None:
    released = table_subject.a.acquire(table_subject.key(), ttl=TTL)
    table_subject.a.release(released.lock_key, owner_token=released.owner_token)
    broken = table_subject.a.acquire(table_subject.key(), ttl=TTL)
    table_subject.b.break_lock(broken.lock_key)
    expired = table_subject.a.acquire(table_subject.key(), ttl=TTL)
    table_subject.expire(expired.lock_key)
    name = application.account(table_subject.key())
    for handle in (released, broken, expired):
        with application.transaction() as transaction:
            statement = update(ACCOUNTS).where(ACCOUNTS.c.name == name, application.guards.fenced(handle))
            assert transaction.execute(statement.values(balance=1)).rowcount == 0


def test_one_statement_may_have_several(application: Application, table_subject: Subject) -> None:
    one, two = (table_subject.a.acquire(table_subject.key(), ttl=TTL) for _ in range(2))
    bad = stale(table_subject)
    name = application.account(table_subject.key())
    fenced = application.guards.fenced
    with application.transaction() as transaction:
        for conditions, expected in (
            ((fenced(one), fenced(two)), 1),
            ((fenced(one), fenced(bad)), 0),
            ((fenced(one), ~fenced(bad)), 1),
            ((fenced(bad) | fenced(two),), 1),
        ):
            statement = update(ACCOUNTS).where(ACCOUNTS.c.name == name, *conditions)
            change = statement.values(balance=ACCOUNTS.c.balance + 1)
            assert transaction.execute(change).rowcount == expected


def test_it_pins_like_a_guard(application: Application, table_subject: Subject) -> None:
    name = application.account(table_subject.key())
    with application.transaction() as transaction:

        def write(handle: LockHandle) -> None:
            statement = update(Account).where(Account.name == name, application.guards.fenced(handle))
            if transaction.execute(statement.values(balance=1)).rowcount == 0:
                raise StaleFencingToken("it was over", details={})

        handle, _ = soon_over(table_subject, write)
        until(lambda: table_subject.now() > handle.expires_at, within=10, what="the lease has expired")
        assert taken(table_subject.b, handle.lock_key) is False
        transaction.commit()
    assert taken(table_subject.b, handle.lock_key) is True


def test_c152_a_stale_update_that_waits_for_its_row_changes_nothing(
    application: Application, network_subject: Subject
) -> None:
    # at all levels at the same time, so that their leases expire together
    with ExitStack() as stack:
        writes = [
            WaitingWrite(application, network_subject, stack, level)
            for level in LEVELS[network_subject.kind.server]
        ]
        for number, write in enumerate(writes):
            write.begin(ttl=3.0)
            until(
                lambda count=number + 1: waiting(network_subject) >= count,  # type: ignore[misc]
                what=f"the write waits at {write.level}",
            )
        for write in writes:
            write.check()


class WaitingWrite:
    """A fenced write of a row that somebody else keeps locked until the lease is over."""

    def __init__(self, application: Application, subject: Subject, stack: ExitStack, level: str) -> None:
        self.level = level
        self._application = application
        self._subject = subject
        self._name = application.account(subject.key())
        engine = application.engine(isolation_level=level)
        with application.transaction(engine=engine) as warming:
            warming.execute("SELECT 1")
        self._transaction = stack.enter_context(application.transaction(engine=engine))
        self._other = stack.enter_context(subject.observer.engine.connect())
        self._other.exec_driver_sql("BEGIN")
        self._other.exec_driver_sql(f"SELECT 1 FROM accounts WHERE name = '{self._name}' FOR UPDATE")

    def begin(self, ttl: float) -> None:
        """Take the lease and send the write."""
        self._handle = self._subject.a.acquire(self._name, ttl=ttl)
        fenced = self._application.guards.fenced(self._handle)
        statement = update(ACCOUNTS).where(ACCOUNTS.c.name == self._name, fenced).values(balance=99)
        self._writing = self._subject.a._threads.submit(self._transaction.execute, statement)

    def check(self) -> None:
        """Let somebody else try for the expired lease, and then the write go on."""
        until(lambda: self._subject.now() > self._handle.expires_at, what="the lease has expired")
        later = self._subject.b.acquire(self._name, ttl=TTL)
        self._other.exec_driver_sql("COMMIT")
        result = self._writing.result(10)
        # either the condition was looked at before the wait, and holds the takeover off, or after it
        assert later.acquired is (result.rowcount == 0)
        self._transaction.commit()
        assert self._application.balance(self._name) == (0 if later.acquired else 99)


def test_c152_a_lease_taken_over_before_the_write_waits(
    application: Application, network_subject: Subject
) -> None:
    for level in LEVELS[network_subject.kind.server]:
        name = application.account(network_subject.key())
        handle = network_subject.a.acquire(name, ttl=TTL)
        with (
            application.transaction(isolation_level=level) as transaction,
            network_subject.observer.engine.connect() as other,
        ):
            other.exec_driver_sql("BEGIN")
            other.exec_driver_sql(f"UPDATE accounts SET balance = 5 WHERE name = '{name}'")
            network_subject.expire(handle.lock_key)
            assert network_subject.b.acquire(name, ttl=TTL).acquired is True
            fenced = application.guards.fenced(handle)
            statement = update(ACCOUNTS).where(ACCOUNTS.c.name == name, fenced).values(balance=99)
            writing = network_subject.a._threads.submit(transaction.execute, statement)
            until(lambda: writing.done() or waiting(network_subject), what="the write waits")  # noqa: B023
            other.exec_driver_sql("COMMIT")
            assert writing.result(10).rowcount == 0, level
            transaction.commit()
        assert application.balance(name) == 5


def test_compiled_statements_are_cached_by_what_differs(
    application: Application, table_subject: Subject
) -> None:
    name = application.account(table_subject.key())
    good, bad = table_subject.a.acquire(name, ttl=TTL), stale(table_subject)
    with application.transaction() as transaction:
        for handle in (good, bad, good, bad):
            fenced = application.guards.fenced(handle)
            statement = update(ACCOUNTS).where(ACCOUNTS.c.name == name, fenced).values(balance=1)
            assert transaction.execute(statement).rowcount == (handle is good)


def test_other_databases_are_named() -> None:
    handle = LockHandle(True, "k", "o", None, 1)  # type: ignore[arg-type]
    fenced = Guards().fenced(handle)
    with pytest.raises(BackendUnsupported, match="mssql"):
        select(literal(1)).where(fenced).compile(dialect=mssql.dialect())  # type: ignore[no-untyped-call]
    assert "EXISTS" in str(fenced)


def test_a_handle_that_was_not_granted_is_refused(application: Application, subject: Subject) -> None:
    key = subject.key()
    subject.a.acquire(key, ttl=TTL)
    with pytest.raises(LockValidationError, match="not granted"):
        application.guards.fenced(subject.b.acquire(key, ttl=TTL))


def test_c055_a_resource_accepts_no_token_below_the_highest(
    application: Application, table_subject: Subject
) -> None:
    name = application.account(table_subject.key())
    key = table_subject.key()
    old = table_subject.a.acquire(key, ttl=TTL)
    table_subject.expire(key)
    new = table_subject.b.acquire(key, ttl=TTL)

    def write(handle: LockHandle, column: Any, table: Any) -> int:
        token = handle.fencing_token
        statement = update(table).where(table.c.name == name if table is ACCOUNTS else Account.name == name)
        with application.transaction() as transaction:
            written = transaction.execute(statement.where(accepts(column, token)).values(seen=token))
            transaction.commit()
            return int(written.rowcount)

    for column, table in ((ACCOUNTS.c.seen, ACCOUNTS), (Account.seen, Account)):
        assert write(old, column, table) == (table is ACCOUNTS), "nothing was seen yet"
        assert write(new, column, table) == 1
        assert write(old, column, table) == 0
        assert write(new, column, table) == 1, "the same token again"
