"""The proof of a lease, as a statement or as an expression, for the database that is asked.

An expression is made before it is known where it will run, so it chooses its SQL when it is compiled.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Boolean, Table
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from sqllocks.dialects import leases_for
from sqllocks.dialects.guards import Claimed, GuardDialect, is_clustered
from sqllocks.dialects.mysql import MysqlLeases
from sqllocks.dialects.mysql_guard import MysqlClusterGuard, MysqlGuard
from sqllocks.dialects.postgresql import PostgresqlLeases
from sqllocks.dialects.postgresql_guard import PostgresqlGuard
from sqllocks.dialects.sqlite import SqliteLeases
from sqllocks.dialects.sqlite_guard import SqliteGuard
from sqllocks.errors import BackendUnsupported

__all__ = ["Fence", "Fenced", "guard_for", "no_fence_in_a_cluster"]

# the place of each database's sub-select among the arguments of the expression
_PLACES = {"postgresql": 0, "mysql": 1, "mariadb": 1, "sqlite": 2}
_PRINTED = "default"
"""The dialect of ``str(expression)``, which no database has: any sub-select will do."""


class Fenced(FunctionElement[bool]):
    """True while a grant is the newest and unexpired, in which case its row is locked as by a guard.

    Its arguments are the sub-selects for each database, so the parameters of all of them take part in
    SQLAlchemy's cache of compiled statements.
    """

    name = "fenced"
    type = Boolean()
    inherit_cache = True


class Fence:
    """Makes the expressions for one lock table."""

    def __init__(self, table: Table) -> None:
        self._guards: tuple[GuardDialect, ...] = (
            PostgresqlGuard(PostgresqlLeases(table)),
            MysqlGuard(MysqlLeases(table)),
            SqliteGuard(SqliteLeases(table)),
        )

    def __call__(self, key: str, owner: str, token: int) -> Fenced:
        """Return the expression for one grant; ``key`` as the row has it."""
        claim = Claimed(key, owner, token)
        return Fenced(*(guard.fence(claim).exists() for guard in self._guards))


def guard_for(dialect: Dialect, table: Table) -> GuardDialect:
    """Return the guard statements for a connected engine, whose cluster must have been asked for."""
    leases = leases_for(dialect, table)
    if isinstance(leases, PostgresqlLeases):
        return PostgresqlGuard(leases)
    if isinstance(leases, MysqlLeases):
        return MysqlClusterGuard(leases) if is_clustered(dialect) else MysqlGuard(leases)
    assert isinstance(leases, SqliteLeases)
    return SqliteGuard(leases)


def no_fence_in_a_cluster() -> BackendUnsupported:
    """Return the error for ``fenced`` on Galera and group replication."""
    return BackendUnsupported(
        "fenced() locks by reading, which other nodes of Galera or group replication do not see, so it would "
        "let a stale writer through: call guard() in the same transaction, which changes the lock's row"
    )


@compiles(Fenced)
def _compile(element: Fenced, compiler: Any, **options: Any) -> str:
    dialect: Dialect = compiler.dialect
    if is_clustered(dialect):
        raise no_fence_in_a_cluster()
    place = _PLACES.get(dialect.name, 2 if dialect.name == _PRINTED else None)
    if place is None:
        raise BackendUnsupported(f"fenced() does not know the database {dialect.name!r}")
    proofs = list(element.clauses)
    text: str = compiler.process(proofs[place], **options)
    return text
