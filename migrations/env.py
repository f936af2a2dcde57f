"""Runs the revisions of sqllocks by themselves, for those who keep no Alembic history of their own."""

from __future__ import annotations

from alembic import context
from sqlalchemy import create_engine

from sqllocks.alembic.locations import VERSION_TABLE
from sqllocks.schema import metadata

config = context.config
url = config.get_main_option("sqlalchemy.url")


def run_offline() -> None:
    context.configure(url=url, target_metadata=metadata, literal_binds=True, version_table=VERSION_TABLE)
    with context.begin_transaction():
        context.run_migrations()


def run_online() -> None:
    if url is None:
        raise SystemExit("set sqlalchemy.url to the database that holds the locks")
    engine = create_engine(url)
    with engine.connect() as connection:
        context.configure(connection=connection, target_metadata=metadata, version_table=VERSION_TABLE)
        with context.begin_transaction():
            context.run_migrations()
    engine.dispose()


if context.is_offline_mode():
    run_offline()
else:
    run_online()
