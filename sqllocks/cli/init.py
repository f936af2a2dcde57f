"""``sqllocks init``: make the lock table."""

from __future__ import annotations

import click

from sqllocks.cli import exits
from sqllocks.cli.place import Place, place_options
from sqllocks.errors import SchemaMissing
from sqllocks.providers import SqlLockProvider

__all__ = ["init_command"]

_NOTHING = "sqllocks init"
"""A start that no key has: the table is looked at, and not read."""


@click.command("init")
@place_options(namespace=False)
def init_command(place: Place) -> int:
    """Create the lock table; harmless where it exists."""
    with place.open(create=False) as provider:
        there = _has_table(provider)
        if not there:
            provider.create_table()
            # a table of that name that is not the library's is still not usable
            provider.list_locks(prefix=_NOTHING)
    click.echo(f"{'Nothing to do, there is already' if there else 'Created'} {place.describe()}")
    return exits.OK


def _has_table(provider: SqlLockProvider) -> bool:
    try:
        provider.list_locks(prefix=_NOTHING)
    except SchemaMissing:
        return False
    return True
