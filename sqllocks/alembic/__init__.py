"""For applications that use Alembic: the lock table in their history, and one migrator at a time.

Importing it registers ``op.create_core_locks()`` and ``op.drop_core_locks()``; needs the extra ``alembic``.
"""

from __future__ import annotations

from sqllocks.alembic.applying import apply_migrations
from sqllocks.alembic.autogenerating import without_core_locks
from sqllocks.alembic.guarding import MigrationGuard, migration_guard
from sqllocks.alembic.locations import script_location, version_location
from sqllocks.alembic.operations import CreateCoreLocksOp, DropCoreLocksOp
from sqllocks.alembic.progress import MigrationResult

__all__ = [
    "CreateCoreLocksOp",
    "DropCoreLocksOp",
    "MigrationGuard",
    "MigrationResult",
    "apply_migrations",
    "migration_guard",
    "script_location",
    "version_location",
    "without_core_locks",
]
