"""``sqllocks purge``: rows of keys that nobody has used for long."""

from __future__ import annotations

import click

from sqllocks.cli import exits
from sqllocks.cli.place import Place, place_options
from sqllocks.cli.spans import SPAN

__all__ = ["purge_command"]


@click.command("purge")
@place_options()
@click.option(
    "--idle", type=SPAN, required=True, metavar="SECONDS", help="Only keys free for that long; at least 60."
)
def purge_command(place: Place, *, idle: float) -> int:
    """Remove rows of keys that were free for long.

    Held keys stay; rows whose token is not at least that old stay, too. So the next grant of a removed key
    has a higher token all the same.
    """
    with place.open() as provider:
        removed = provider.purge(idle=idle)
    click.echo(f"Removed {removed} row{'' if removed == 1 else 's'}")
    return exits.OK
