"""``sqllocks watch``: who holds what, as it changes."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from sqllocks.cli import exits, messages
from sqllocks.cli.listing import as_fields, as_table
from sqllocks.cli.place import Place, place_options
from sqllocks.cli.signals import Interrupted, Signals
from sqllocks.cli.spans import SpanRange
from sqllocks.errors import BackendUnavailable
from sqllocks.model import LockInfo
from sqllocks.protocols import LockProvider

__all__ = ["watch_command"]


@click.command("watch", short_help="Show keys and their holders as they change.")
@place_options()
@click.option("--prefix", default="", metavar="TEXT", help="Only keys that start with TEXT.")
@click.option("--all", "everything", is_flag=True, help="On a terminal, show keys that are free, too.")
@click.option(
    "--interval",
    type=SpanRange(0.1, 3600),
    default=1.0,
    show_default=True,
    metavar="S",
    help="Seconds between two looks.",
)
@click.option("--json", "as_json", is_flag=True, help="Print an object for each change.")
def watch_command(place: Place, *, prefix: str, everything: bool, interval: float, as_json: bool) -> int:
    """Look at the keys every second, until Ctrl-C.

    On a terminal the list stands still and changes; elsewhere each change is a line: a key that was
    granted or is free again, first of all what is held now. What comes and goes between two looks is not
    seen. A database that goes away is waited for.
    """
    with Signals() as signals:
        try:
            with place.open() as provider:
                if as_json or not sys.stdout.isatty():
                    lines = _Lines(as_json=as_json)
                    while True:
                        _look(provider, prefix, lines)
                        signals.wait(interval)
                with Live(console=Console(), auto_refresh=False, transient=False) as live:
                    view = _View(live, everything=everything)
                    while True:
                        _look(provider, prefix, view)
                        signals.wait(interval)
        except Interrupted as interrupted:
            return exits.of_signal(interrupted.number)


class _Lines:
    """One line for each change."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._last: dict[str, LockInfo] = {}
        self.met = False

    def show(self, found: Sequence[LockInfo]) -> None:
        """Print what is not as it was; an expiry that was put off is no change."""
        for info in found:
            before = self._last.get(info.lock_key)
            if before is None and not info.held:
                continue
            if before is None or (before.held, before.fencing_token) != (info.held, info.fencing_token):
                click.echo(json.dumps(as_fields(info)) if self._as_json else _line(info))
        self._last = {info.lock_key: info for info in found}
        self.met = True
        sys.stdout.flush()

    def trouble(self, message: str) -> None:
        """Tell that there is no answer."""
        messages.warn(message)


class _View:
    """A list that stands still on the terminal."""

    def __init__(self, live: Live, *, everything: bool) -> None:
        self._live = live
        self._everything = everything
        self._table: RenderableType = Text("")
        self.met = False

    def show(self, found: Sequence[LockInfo]) -> None:
        """Show the list."""
        shown = [info for info in found if info.held or self._everything]
        head = Text(f"{datetime.now(UTC):%H:%M:%S} UTC, {sum(info.held for info in found)} held", "dim")
        self._table = Group(head, as_table(shown)) if shown else head
        self._live.update(self._table, refresh=True)
        self.met = True

    def trouble(self, message: str) -> None:
        """Show that the list is old."""
        said = Text(messages.masked(messages.printable(message)), "bold red")
        self._live.update(Group(self._table, said), refresh=True)


def _look(provider: LockProvider, prefix: str, view: _Lines | _View) -> None:
    try:
        found = provider.list_locks(prefix=prefix)
    except BackendUnavailable as error:
        if not view.met:
            raise
        view.trouble(error.message)
    else:
        view.show(found)


def _line(info: LockInfo) -> str:
    now = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
    key, holder = messages.printable(info.lock_key), messages.printable(info.holder)
    if not info.held:
        return f"{now}  free  {key}"
    return f"{now}  held  {key}  {holder}  token {info.fencing_token}  {info.kind}"
