"""Create core_locks.

Revision ID: sqllocks_0001
Revises:
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from sqllocks.schema import ByteString, Instant

revision = "sqllocks_0001"
down_revision = None
branch_labels = ("sqllocks",)
depends_on = None


def upgrade() -> None:
    op.create_table(
        "core_locks",
        sa.Column("lock_key", ByteString(255), primary_key=True),
        sa.Column("owner_token", ByteString(128), nullable=False),
        sa.Column("attempt", ByteString(32), nullable=False),
        sa.Column("kind", ByteString(16), nullable=False),
        sa.Column("holder", ByteString(255), nullable=False),
        sa.Column("server_lock", ByteString(255), nullable=False),
        sa.Column("fencing_token", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("acquired_at", Instant, nullable=False),
        sa.Column("expires_at", Instant, nullable=False),
        mysql_engine="InnoDB",
        mariadb_engine="InnoDB",
        # a guard of the migrations needs the table before they run
        if_not_exists=True,
    )
    if op.get_context().dialect.name == "postgresql":
        op.execute(
            "ALTER TABLE core_locks SET (fillfactor = 50, "
            "autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000, "
            "autovacuum_analyze_scale_factor = 0.0, autovacuum_analyze_threshold = 5000)"
        )


def downgrade() -> None:
    op.drop_table("core_locks")
