"""Guard statements on connections of the application: sent in its transaction, and what they met."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

from sqlalchemy import Connection, Executable, Table
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session

from sqllocks.core.guard import Claim, conflict, objection
from sqllocks.core.naming import Names
from sqllocks.dialects import leases_for
from sqllocks.dialects.base import Answer, Parameters, Result, Row, Statement, Want
from sqllocks.dialects.guards import CLUSTER_QUESTION, GuardDialect, is_clustered, note_cluster
from sqllocks.dialects.proofs import guard_for
from sqllocks.errors import LockError, LockValidationError
from sqllocks.runtime.statements import Faults

__all__ = ["Proofs", "begun"]

_AUTOCOMMIT = "AUTOCOMMIT"


class Proofs:
    """Proves leases of one table inside transactions of the application."""

    def __init__(self, table: Table, names: Names) -> None:
        self._table = table
        self._names = names
        self._guards: dict[tuple[str, bool, bool], GuardDialect] = {}

    def prove(
        self,
        source: Session | Connection,
        claim: Claim,
        at_most: int | None,
        pinned: Callable[[Connection], bool],
    ) -> tuple[Connection, GuardDialect]:
        """Prove a claim and pin its row, or raise; return the connection that has it pinned, and how.

        Waits where somebody has the row locked at this moment: a takeover for milliseconds, another
        transaction for as long as the database lets any statement of the caller's wait.
        """
        connection = self._begun(source, claim)
        guard = self._guard(connection, claim)
        statement = guard.guard if at_most is None else guard.bounded
        rows = self._send(connection, statement, guard.parameters(claim.key, at_most), claim, guard)
        if guard.autocommits(connection.connection, rows):
            raise _no_transaction()
        view = guard.view(rows)
        if guard.stops_own and view.row is not None and pinned(connection):
            # this very transaction has kept everybody from it, its renewals as well
            view = replace(view, row=replace(view.row, live=True))
        found = objection(claim, view)
        if found is not None:
            raise found
        if guard.mark is not None:
            self._send(connection, guard.mark, guard.parameters(claim.key, None), claim, guard)
        return connection, guard

    def claim(self, connection: Connection, want: Want) -> Answer | None:
        """Claim a key by a statement in the caller's transaction; ``None`` where it is held."""
        leases = leases_for(connection.dialect, self._table)
        claim = Claim(want.key, self._names.outer(want.key), want.owner, 0)
        rows = self._send(connection, leases.claim, leases.batch([want]), claim)
        return leases.told(Result(rows, -1), [want]).get(want.key)

    def expire(self, connection: Connection, want: Want) -> None:
        """Set the expiry of a claim to this moment, by a statement in the caller's transaction."""
        leases = leases_for(connection.dialect, self._table)
        claim = Claim(want.key, self._names.outer(want.key), want.owner, 0)
        self._send(connection, leases.renew, leases.batch([want._replace(ttl=0)]), claim)

    def _begun(self, source: Session | Connection, claim: Claim) -> Connection:
        try:
            return begun(source)
        except Exception as error:
            if _is_misuse(error):
                raise
            bind = source if isinstance(source, Connection) else source.get_bind()
            fault = Faults(bind.engine.url).fault(error, sent=False)
            raise self._names.error(fault, "guard", claim.key) from error

    def _guard(self, connection: Connection, claim: Claim) -> GuardDialect:
        dialect = connection.dialect
        clustered = is_clustered(dialect)
        if clustered is None:
            answer = self._send(connection, CLUSTER_QUESTION, {}, claim)
            clustered = note_cluster(dialect, answer)
        kind = (dialect.name, bool(getattr(dialect, "is_mariadb", False)), clustered)
        if kind not in self._guards:
            self._guards[kind] = guard_for(dialect, self._table)
        return self._guards[kind]

    def _send(
        self,
        connection: Connection,
        statement: Statement,
        parameters: Parameters,
        claim: Claim,
        guard: GuardDialect | None = None,
    ) -> Sequence[Row]:
        try:
            result = connection.execute(cast("Executable", statement.clause), dict(parameters))
            return result.all() if statement.rows else ()
        except Exception as error:
            if _is_misuse(error):
                raise
            raise self._error(connection, error, claim, guard) from error

    def _error(
        self, connection: Connection, error: Exception, claim: Claim, guard: GuardDialect | None
    ) -> LockError:
        fault = Faults(connection.engine.url).fault(error, sent=True)
        driver_error = error.orig if isinstance(error, DBAPIError) else None
        # SQLAlchemy's adapters of asyncio drivers raise their own error from the driver's
        for candidate in (driver_error, getattr(driver_error, "__cause__", None)):
            retryable = guard.retryable(candidate) if guard and candidate else None
            if retryable is not None:
                return conflict(claim, fault.message, retryable=retryable)
        return self._names.error(fault, "guard", claim.key)


def begun(source: Session | Connection) -> Connection:
    """Return the connection of a session, or the one that was given, in a transaction.

    Raises ``LockValidationError`` where each statement is a transaction of its own.
    """
    connection = source if isinstance(source, Connection) else source.connection()
    if connection.get_execution_options().get("isolation_level") == _AUTOCOMMIT:
        raise _no_transaction()
    if not connection.in_transaction():
        connection.begin()  # as SQLAlchemy's autobegin would
    return connection


def _is_misuse(error: Exception) -> bool:
    """Tell what SQLAlchemy says of the caller's own session from what the database or a driver says."""
    return isinstance(error, LockError | SQLAlchemyError) and not isinstance(error, DBAPIError | PoolTimeout)


def _no_transaction() -> LockValidationError:
    return LockValidationError(
        "this connection is in autocommit mode, where a guard protects nothing because each statement is its "
        "own transaction: pass a Session or Connection in the transaction that writes"
    )
