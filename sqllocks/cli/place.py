"""Where the locks are: the options that say so, and the file that is used without them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec
from urllib.parse import unquote, urlsplit

import click
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from sqllocks.cli import messages
from sqllocks.cli.keeping import KeepingProvider
from sqllocks.errors import BackendUnavailable, LockValidationError
from sqllocks.schema import TABLE_NAME

__all__ = ["Place", "place_options", "state_file"]

P = ParamSpec("P")
Command = Callable[..., int]


@dataclass(frozen=True, slots=True)
class Place:
    """A lock table as the options name it; ``url`` is ``None`` where none was given."""

    url: str | None = None
    table: str = TABLE_NAME
    schema: str | None = None
    namespace: str = ""

    def open(self, *, create: bool = True, tell: bool = True) -> KeepingProvider:
        """Return a provider; without a URL, of the user's own file, made where it is missing.

        Its table is made too, unless ``create`` is false. ``tell``: say which file it is that was made.
        """
        new = tell and self.url is None and not state_file().exists()
        provider = KeepingProvider(
            self.address(), namespace=self.namespace, table=self.table, schema=self.schema
        )
        if self.url is not None:
            return provider
        if create:
            # each time: another process may have made the file and not yet the table; costs no write
            provider.create_table()
        if new:
            messages.say(f"no --url given: locks are kept in {state_file()}")
        return provider

    def address(self) -> str | URL:
        """Return the URL; without one, that of the user's own file, whose directory is made."""
        if self.url is not None:
            _refuse_asyncio(self.url)
            return self.url
        _make_directory(state_file().parent)
        return URL.create("sqlite", database=str(state_file()))

    def caution(self) -> str | None:
        """Return what somebody who excludes others has to know where no URL was given, else ``None``."""
        if self.url is not None:
            return None
        return f"no --url given: the lock is in {state_file()}, which excludes nobody on other machines"

    def missing(self) -> Path | None:
        """Return the SQLite file of the place where it is not there: whoever opens it would make it."""
        path = state_file() if self.url is None else _file_of(self.url)
        return None if path is None or path.exists() else path

    def describe(self) -> str:
        """Return the table and its database for people to read."""
        table = f"{self.schema}.{self.table}" if self.schema else self.table
        if self.url is None:
            return f"{table} in {state_file()}"
        try:
            url = make_url(self.url)
        except (ArgumentError, ValueError):  # opening it explains; this error would show the password
            return f"{table} in a database"
        # the query may carry a password as well
        return f"{table} in {url.set(query={}).render_as_string(hide_password=True)}"


def place_options(
    *, namespace: bool = True, default: str = "a SQLite file of your own, made when first needed"
) -> Callable[[Callable[Concatenate[Place, P], int]], Command]:
    """Add ``--url`` and its companions to a command, which gets them as one ``Place``.

    ``default`` says what is used without a URL.
    """

    names = ("url", "table", "schema", "namespace") if namespace else ("url", "table", "schema")

    def decorate(command: Callable[Concatenate[Place, P], int]) -> Command:
        @wraps(command)
        def with_place(*arguments: Any, **options: Any) -> int:
            place = Place(**{name: options.pop(name) for name in names})
            return command(place, *arguments, **options)

        decorated: Any = with_place
        for option in reversed(_COMPANIONS[: len(names) - 1]):
            decorated = option(decorated)
        decorated = _url_option(default)(decorated)
        result: Command = decorated
        return result

    return decorate


def _refuse_asyncio(address: str) -> None:
    """Raise ``LockValidationError`` for a URL of the asyncio form, in the words of the command line."""
    try:
        url = make_url(address)
        asyncio = url.get_dialect().is_async
    except (SQLAlchemyError, ValueError):  # opening it explains
        return
    if asyncio:
        raise LockValidationError(
            f"{url.drivername!r} is an asyncio driver, which the command line has no use for: leave the "
            f"driver out of the URL ({url.get_backend_name()}://…)"
        )


def _file_of(address: str) -> Path | None:
    try:
        url = make_url(address)
    except (ArgumentError, ValueError):  # opening it explains
        return None
    if url.get_backend_name() != "sqlite" or url.database in {None, "", ":memory:"}:
        return None
    name = url.database or ""
    if not name.startswith("file:"):
        return Path(name)
    path = "" if "mode=memory" in f"{name}{url.query}" else urlsplit(name).path
    return Path(unquote(path)) if path else None


def _not_blank(_context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not value.strip():
        raise click.BadParameter("must not be empty", param=parameter)
    return value


def _url_option(default: str) -> Callable[[Any], Any]:
    return click.option(
        "--url",
        envvar="SQLLOCKS_URL",
        show_envvar=True,
        metavar="URL",
        callback=_not_blank,
        help="Database, as a SQLAlchemy URL. Prefer the variable where it has a password: everybody on the "
        f"machine can read arguments. Default: {default}.",
    )


_COMPANIONS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--table",
        default=TABLE_NAME,
        show_default=True,
        metavar="NAME",
        callback=_not_blank,
        help="Name of the lock table.",
    ),
    click.option("--schema", metavar="NAME", callback=_not_blank, help="Schema the table is in."),
    click.option("--namespace", default="", metavar="TEXT", help="Text before each key in the table."),
)


def state_file() -> Path:
    """Return the path of the SQLite file that is used without a URL."""
    return _state_directory() / "sqllocks" / "locks.sqlite3"


def _state_directory() -> Path:
    # https://specifications.freedesktop.org/basedir: a relative path there is to be ignored
    state = os.environ.get("XDG_STATE_HOME", "")
    if Path(state).is_absolute():
        return Path(state)
    try:
        home = Path.home()
    except RuntimeError as error:
        raise BackendUnavailable(f"no --url given, and {error}: pass --url") from error
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    if sys.platform == "darwin":
        return home / "Library" / "Application Support"
    return home / ".local" / "state"


def _make_directory(path: Path) -> None:
    """Make the directory for its owner alone; one that is there stays as it is."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise BackendUnavailable(
            f"no --url given, and {path} cannot be made ({error.strerror}): pass --url"
        ) from error
