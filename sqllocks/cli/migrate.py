"""``sqllocks migrate``: an application's Alembic migrations, by one process at a time."""

from __future__ import annotations

import logging
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sqllocks.cli import exits, messages
from sqllocks.cli.spans import SPAN

if TYPE_CHECKING:
    from alembic.config import Config

    from sqllocks.alembic import MigrationResult

__all__ = ["migrate_command"]


@click.command("migrate", short_help="Apply Alembic migrations, one migrator at a time.")
@click.option(
    "--url",
    envvar="SQLLOCKS_URL",
    show_envvar=True,
    metavar="URL",
    help="Database that keeps the lock, and the one to migrate where the configuration names none. Default: "
    "the one that is migrated.",
)
@click.option(
    "-c",
    "--config",
    "path",
    envvar="ALEMBIC_CONFIG",
    default="alembic.ini",
    show_default=True,
    metavar="FILE",
    help="Alembic's configuration.",
)
@click.option("-n", "--name", default="alembic", show_default=True, metavar="SECTION", help="Section of it.")
@click.option("-x", "extra", multiple=True, metavar="ARG", help="Argument for env.py, as of alembic -x.")
@click.option(
    "--wait",
    type=SPAN,
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for another migrator.",
)
@click.argument("action", type=click.Choice(["upgrade"]), default="upgrade")
@click.argument("revision", default="heads")
def migrate_command(
    *,
    url: str | None,
    path: str,
    name: str,
    extra: tuple[str, ...],
    wait: float,
    action: str,
    revision: str,
) -> int:
    """Upgrade to REVISION under the lock "migrations:apply".

    Several may start at once: one migrates, the others wait for it and then find nothing to do. A
    database that is at REVISION already is left alone, without a lock.
    """
    try:
        from alembic.util import CommandError  # noqa: PLC0415  an extra

        from sqllocks.alembic import apply_migrations  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "alembic":
            raise
        raise click.ClickException("this needs Alembic: pip install 'sqllocks[alembic]'") from error
    config = _configuration(path, name, extra, url)
    try:
        # for whom it waits is logged; an env.py that sets logging up itself replaces this
        logging.basicConfig(level=logging.WARNING, format="sqllocks: %(message)s")
        result = apply_migrations(config, revision, wait=wait)
    except CommandError as error:
        messages.say(str(error))
        return exits.NO
    click.echo(_outcome(result))
    return exits.OK


def _configuration(path: str, name: str, extra: tuple[str, ...], url: str | None) -> Config:
    from alembic.config import Config  # noqa: PLC0415

    from sqllocks.alembic.applying import BIND  # noqa: PLC0415

    if not Path(path).is_file():
        raise click.BadParameter(f"there is no file {path!r}", param_hint="--config")
    config = Config(path, ini_section=name, cmd_opts=Namespace(x=list(extra) or None))
    if url is not None:
        config.attributes[BIND] = url
        if config.get_main_option("sqlalchemy.url") is None:
            config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    return config


def _outcome(result: MigrationResult) -> str:
    at = ", ".join(result.to_revisions) or "base"
    if not result.applied:
        return f"Nothing to do at {at}"
    count = len(result.applied)
    return f"Applied {count} revision{'' if count == 1 else 's'}, now at {at}: {', '.join(result.applied)}"
