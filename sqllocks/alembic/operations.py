"""``op.create_core_locks()`` and ``op.drop_core_locks()``: the lock table in an application's own history."""

from __future__ import annotations

from alembic.operations import MigrateOperation, Operations
from sqlalchemy import MetaData
from sqlalchemy.schema import CreateTable, DropTable

from sqllocks.schema import POSTGRESQL_STORAGE, TABLE_NAME, core_locks

__all__ = ["CreateCoreLocksOp", "DropCoreLocksOp"]


class _CoreLocksOp(MigrateOperation):
    def __init__(self, *, table: str = TABLE_NAME, schema: str | None = None) -> None:
        self.table = table
        self.schema = schema


@Operations.register_operation("create_core_locks")
class CreateCoreLocksOp(_CoreLocksOp):
    """Creates the lock table; harmless where it exists, as it does where a guard came first."""

    @classmethod
    def create_core_locks(
        cls, operations: Operations, *, table: str = TABLE_NAME, schema: str | None = None
    ) -> None:
        """Create the lock table, in the default schema unless ``schema`` names one that exists."""
        operations.invoke(cls(table=table, schema=schema))

    def reverse(self) -> DropCoreLocksOp:
        """Return the operation that undoes this one."""
        return DropCoreLocksOp(table=self.table, schema=self.schema)


@Operations.register_operation("drop_core_locks")
class DropCoreLocksOp(_CoreLocksOp):
    """Drops the lock table, and with it every lock that is held and the fencing tokens of all keys."""

    @classmethod
    def drop_core_locks(
        cls, operations: Operations, *, table: str = TABLE_NAME, schema: str | None = None
    ) -> None:
        """Drop the lock table; harmless where there is none."""
        operations.invoke(cls(table=table, schema=schema))

    def reverse(self) -> CreateCoreLocksOp:
        """Return the operation that undoes this one."""
        return CreateCoreLocksOp(table=self.table, schema=self.schema)


@Operations.implementation_for(CreateCoreLocksOp)
def _create(operations: Operations, operation: CreateCoreLocksOp) -> None:
    table = core_locks(MetaData(), name=operation.table, schema=operation.schema)
    operations.execute(CreateTable(table, if_not_exists=True))
    if operations.get_context().dialect.name == "postgresql":
        operations.execute(POSTGRESQL_STORAGE.against(table))


@Operations.implementation_for(DropCoreLocksOp)
def _drop(operations: Operations, operation: DropCoreLocksOp) -> None:
    table = core_locks(MetaData(), name=operation.table, schema=operation.schema)
    operations.execute(DropTable(table, if_exists=True))
