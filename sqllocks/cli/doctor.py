"""``sqllocks doctor``: what this database can and cannot do for locks."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sqllocks.cli import exits, messages
from sqllocks.cli.place import Place, place_options
from sqllocks.diagnosis import Diagnosis, Finding, Level
from sqllocks.registry import create_elector

__all__ = ["doctor_command"]

_EXITS: dict[Level, int] = {
    "ok": exits.OK,
    "note": exits.OK,
    "warning": exits.WARNINGS,
    "failure": exits.FAILURES,
}
_STYLES: dict[Level, str] = {"ok": "green", "note": "cyan", "warning": "bold yellow", "failure": "bold red"}


@click.command("doctor", short_help="Tell what the database can do for locks.")
@place_options(namespace=False, default="the SQLite file of your own that other commands make")
@click.option("--json", "as_json", is_flag=True, help="Print an object.")
def doctor_command(place: Place, *, as_json: bool) -> int:
    """Look at the database: whether leases, session locks and elections work there, and how well.

    Changes nothing. Exits 0 with notes at most, 1 with warnings, 2 where something does not work.
    """
    diagnosis = _diagnose(place)
    if as_json:
        findings = [asdict(finding) for finding in diagnosis.findings]
        click.echo(json.dumps({"level": diagnosis.level, "findings": findings}, indent=2))
    elif sys.stdout.isatty():
        Console().print(_table(diagnosis))
    else:
        for finding in diagnosis.findings:
            click.echo(messages.printable(str(finding)))
    return _EXITS[diagnosis.level]


def _diagnose(place: Place) -> Diagnosis:
    if (path := place.missing()) is not None:
        # opening it would make it
        remedy = "check the path, or make the file with `sqllocks init`"
        return Diagnosis((Finding("failure", "no-file", f"there is no file {path}", remedy),))
    # an elector looks at everything that leases and session locks need
    with create_elector(place.address(), table=place.table, schema=place.schema) as elector:
        return elector.diagnose()


def _table(diagnosis: Diagnosis) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in diagnosis.findings:
        # Text: what a server says is not markup
        said = Text(messages.printable(finding.message))
        if finding.remedy:
            said.append(f"\n→ {messages.printable(finding.remedy)}", "dim")
        table.add_row(Text(finding.level, _STYLES[finding.level]), said)
    return table
