"""alembic revision --autogenerate of an application neither drops the lock table nor makes it again."""

from __future__ import annotations

from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Column, Integer, MetaData, Table

from sqllocks import SqlLockProvider
from sqllocks.alembic import without_core_locks
from sqllocks.schema import metadata as lock_metadata
from tests.migrations.application import Application


@pytest.fixture
def app_with_locks(app: Application) -> Application:
    """Return an application with a table of its own, the lock table and that of the library's history."""
    with app.engine() as engine:
        application_metadata().create_all(engine)
    app.rows("create table sqllocks_version (version_num varchar(32) not null)")
    with SqlLockProvider(app.address) as provider:
        provider.create_table()
    return app


def application_metadata() -> MetaData:
    metadata = MetaData()
    Table("orders", metadata, Column("id", Integer, primary_key=True))
    return metadata


def differences(app: Application, metadata: Any, **options: Any) -> list[str]:
    with app.engine() as engine, engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, **options})
        return [
            f"{found[0]} {getattr(found[1], 'name', found)}" for found in compare_metadata(context, metadata)
        ]


def test_without_help_it_would_be_dropped(app_with_locks: Application) -> None:
    found = differences(app_with_locks, application_metadata())
    assert sorted(found) == ["remove_table core_locks", "remove_table sqllocks_version"]


def test_with_the_filter_nothing_is_found(app_with_locks: Application) -> None:
    metadata = application_metadata()
    assert differences(app_with_locks, metadata, include_object=without_core_locks()) == []
    Table("invoices", metadata, Column("id", Integer, primary_key=True))
    assert differences(app_with_locks, metadata, include_object=without_core_locks()) == [
        "add_table invoices"
    ]
    include = without_core_locks(lambda item, name, *_: name != "invoices")
    assert differences(app_with_locks, metadata, include_object=include) == []


def test_with_the_librarys_metadata_nothing_is_found(app_with_locks: Application) -> None:
    metadata = application_metadata()
    lock_metadata.tables["core_locks"].to_metadata(metadata)
    assert differences(app_with_locks, metadata) == ["remove_table sqllocks_version"]
