"""``sqllocks break``: an operator takes a lock away from its holder."""

from __future__ import annotations

import sys

import click

from sqllocks.cli import exits, messages
from sqllocks.cli.place import Place, place_options
from sqllocks.model import LockInfo

__all__ = ["break_command"]


@click.command("break")
@place_options()
@click.argument("key")
@click.option("--yes", is_flag=True, help="Do not ask.")
def break_command(place: Place, *, key: str, yes: bool) -> int:
    """Free KEY, whoever holds it.

    The holder's program may still be running: only a guarded write stops it. Exits 0 where the lock
    was broken, 1 where it was not held or you answered no.
    """
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("nobody can be asked without a terminal: pass --yes")
    with place.open() as provider:
        if not yes:
            info = provider.inspect(key)
            if info is None or not info.held:
                return _not_held(key)
            if not click.confirm(_question(info), err=True):
                messages.say("nothing was changed")
                return exits.NO
        if not provider.break_lock(key):
            return _not_held(key)
    click.echo(f"Broke {messages.printable(key)!r}; the next holder gets a higher token")
    return exits.OK


def _question(info: LockInfo) -> str:
    since = info.acquired_at.isoformat(" ", "seconds") if info.acquired_at else "an unknown time"
    return messages.printable(
        f"{info.lock_key!r} is held by {info.holder} since {since} (token {info.fencing_token}). Break it?"
    )


def _not_held(key: str) -> int:
    messages.say(f"{key!r} is not held")
    return exits.NO
