"""``sqllocks ls`` and ``sqllocks show``: who holds what, for people and for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import fields
from datetime import UTC, datetime

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sqllocks.cli import exits, messages
from sqllocks.cli.place import Place, place_options
from sqllocks.model import LockInfo

__all__ = ["as_fields", "as_table", "ls_command", "show_command"]

Value = str | int | bool | None
HEADINGS = ("key", "state", "holder", "token", "since", "until", "kind")
FOLDED = ("key", "holder")


@click.command("ls", short_help="List keys and their holders.")
@place_options()
@click.option("--prefix", default="", metavar="TEXT", help="Only keys that start with TEXT.")
@click.option("--held", is_flag=True, help="Only keys that are held now.")
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects.")
def ls_command(place: Place, *, prefix: str, held: bool, as_json: bool) -> int:
    """List keys: who holds each, or who held it last, since when and until when (UTC)."""
    with place.open() as provider:
        found = [info for info in provider.list_locks(prefix=prefix) if info.held or not held]
    if as_json:
        click.echo(json.dumps([as_fields(info) for info in found], indent=2))
    elif not found:
        messages.say("no lock is held" if held else "no key was used yet")
    elif sys.stdout.isatty():
        Console().print(as_table(found))
    else:
        click.echo(_aligned([HEADINGS, *map(_cells, found)]))
    return exits.OK


@click.command("show", short_help="Show one key and its holder.")
@place_options()
@click.argument("key")
@click.option("--json", "as_json", is_flag=True, help="Print an object.")
def show_command(place: Place, *, key: str, as_json: bool) -> int:
    """Show who holds KEY, or who held it last; exits 1 for a key that was never used."""
    with place.open() as provider:
        info = provider.inspect(key)
    if as_json:
        click.echo(json.dumps(info and as_fields(info), indent=2))
    elif info is not None:
        click.echo(_aligned([(name, _plain(value)) for name, value in as_fields(info).items()]))
    if info is None:
        messages.say(f"{key!r} was never used")
        return exits.NO
    return exits.OK


def as_fields(info: LockInfo) -> dict[str, Value]:
    """Return the fields of a ``LockInfo`` as JSON has them, instants in ISO form."""
    values: dict[str, Value] = {}
    for field in fields(info):
        value = getattr(info, field.name)
        values[field.name] = value.isoformat() if isinstance(value, datetime) else value
    return values


def _plain(value: Value) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return messages.printable(str(value))


def _cells(info: LockInfo) -> tuple[str, ...]:
    return (
        messages.printable(info.lock_key),
        "held" if info.held else "free",
        messages.printable(info.holder),
        _plain(info.fencing_token),
        _instant(info.acquired_at),
        _instant(info.expires_at),
        info.kind,
    )


def _instant(instant: datetime | None) -> str:
    return f"{instant.astimezone(UTC):%Y-%m-%d %H:%M:%S}" if instant else "-"


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def as_table(found: Sequence[LockInfo]) -> Table:
    """Return the list for a terminal."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold underline")
    today = f"{datetime.now(UTC):%Y-%m-%d} "
    # most tables hold leases alone, and most terminals are narrow
    kinds = {info.kind for info in found} != {"lease"}
    for heading in HEADINGS if kinds else HEADINGS[:-1]:
        # where there is no room, keys and holders go on in the next line: people copy them from here
        table.add_column(heading, overflow="fold", no_wrap=heading not in FOLDED)
    for info in found:
        key, state, *rest, kind = _cells(info)
        # Text: a key with brackets is not markup
        cells = [Text(key), Text(state, "bold green" if info.held else "")]
        cells += [Text(cell.removeprefix(today)) for cell in (*rest, *([kind] if kinds else []))]
        table.add_row(*cells, style="" if info.held else "dim")
    return table
