"""The group of commands, and what becomes of an error that one of them leaves."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

import click

from sqllocks.cli import exits, messages
from sqllocks.cli.breaking import break_command
from sqllocks.cli.demo.command import demo_command
from sqllocks.cli.doctor import doctor_command
from sqllocks.cli.elect import elect_command
from sqllocks.cli.init import init_command
from sqllocks.cli.listing import ls_command, show_command
from sqllocks.cli.migrate import migrate_command
from sqllocks.cli.purging import purge_command
from sqllocks.cli.run import run_command
from sqllocks.cli.watch import watch_command
from sqllocks.errors import LockError

__all__ = ["execute"]

COMMANDS: tuple[click.Command, ...] = (
    demo_command,
    init_command,
    run_command,
    elect_command,
    ls_command,
    show_command,
    watch_command,
    break_command,
    purge_command,
    migrate_command,
    doctor_command,
)


class _InOrder(click.Group):
    """Lists its commands in the order in which a newcomer needs them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


def _version() -> str:
    try:
        return version("sqllocks")
    except PackageNotFoundError:  # a source tree that was never installed
        return "unknown"


@click.group(
    cls=_InOrder,
    commands=COMMANDS,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(_version(), prog_name="sqllocks")
@click.pass_context
def cli(context: click.Context) -> int:
    """Locks in the SQL database that you already run.

    \b
    Exit codes: 0 done; 1 the answer is no; 64 bad arguments;
    69 the database cannot be reached or has no lock table;
    70 the lock was lost; 75 the lock is busy.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
    return exits.USAGE


def execute(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # the reader has seen enough; without this the interpreter complains when it flushes again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.of_signal(13)
    return code


def _run(arguments: Sequence[str] | None) -> int:
    try:
        code: object = cli.main(arguments, prog_name="sqllocks", standalone_mode=False)
    except click.ClickException as error:
        _explain(error)
        return exits.USAGE
    except click.Abort:  # Ctrl-C
        return exits.of_signal(2)
    except LockError as error:
        messages.say(error.message)
        return exits.of_error(error)
    return code if isinstance(code, int) else exits.OK


def _explain(error: click.ClickException) -> None:
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None:
        click.echo(context.get_usage(), err=True)
    messages.say(error.format_message())
    if context is not None:
        click.echo(f"Try '{context.command_path} --help' for help.", err=True)
