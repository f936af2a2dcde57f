"""The command ``sqllocks demo``."""

from __future__ import annotations

import secrets
import signal
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import click
from rich.console import Console
from sqlalchemy import URL
from sqlalchemy.exc import SQLAlchemyError

from sqllocks.cli import exits, messages
from sqllocks.cli.demo.board import Board
from sqllocks.cli.demo.crew import Crew
from sqllocks.cli.demo.events import Event, Kind, Settings
from sqllocks.cli.demo.history import History
from sqllocks.cli.demo.ledger import Ledger
from sqllocks.cli.demo.script import Script
from sqllocks.cli.demo.view import REFRESH, LiveView, PlainView, View
from sqllocks.cli.place import Place, place_options
from sqllocks.cli.signals import Interrupted, Signals
from sqllocks.errors import BackendUnavailable
from sqllocks.runtime import clock

__all__ = ["demo_command"]

LATEST = 2.0
"""Seconds that a slow machine may have beyond the time asked for, until everything was seen."""
PATIENCE = 30.0
"""Seconds that the processes may take to start."""
SECONDS_A_GRANT = 3.0
"""A grant takes less than a second; killing and freezing cost up to three more."""


@dataclass(frozen=True, slots=True)
class _Show:
    """What is to be shown, and where."""

    settings: Settings
    workers: int
    seconds: float
    title: str

    def view(self) -> View:
        console = Console()
        if console.is_terminal:
            return LiveView(self.title, self.seconds, console)
        return PlainView(self.title)


@click.command("demo", short_help="See processes share one job; one is killed, one frozen.")
@place_options(namespace=False, default="a temporary SQLite file")
@click.option("--workers", type=click.IntRange(2, 32), default=4, show_default=True, help="Processes.")
@click.option(
    "--seconds", type=click.FloatRange(6, 3600), default=12.0, show_default=True, help="How long it lasts."
)
def demo_command(place: Place, *, workers: int, seconds: float) -> int:
    """Let several processes share one job by a lock of one second.

    One holder is killed, another is frozen until its lease is over and others have written; its late
    write is refused by its token. Exits 0 only if no two holders ever trusted their lease at the same
    time, tokens rose from grant to grant, and that write was refused; otherwise 1.

    Without a URL everything is in a temporary SQLite file. In a database that you name, the demo's table
    and key are removed at the end; a lock table that was missing stays.
    """
    if not hasattr(signal, "SIGSTOP"):
        raise click.UsageError("this system cannot freeze a process (it has no SIGSTOP)")
    with Signals() as signals:
        try:
            with _database(place) as (url, name):
                return _in(replace(place, url=url), name, workers, seconds, signals)
        except Interrupted as interrupted:
            messages.say("ended early; nothing is left behind")
            return exits.of_signal(interrupted.number)


@contextmanager
def _database(place: Place) -> Generator[tuple[str, str]]:
    """Give the URL to use and its description, by default of a file that is removed again."""
    if place.url is not None:
        yield place.url, place.describe()
        return
    with tempfile.TemporaryDirectory(prefix="sqllocks-demo-") as directory:
        url = URL.create("sqlite", database=str(Path(directory, "demo.sqlite3")))
        yield url.render_as_string(), "a temporary SQLite file"


def _in(place: Place, name: str, workers: int, seconds: float, signals: Signals) -> int:
    assert place.url is not None
    with place.open() as provider:
        provider.create_table()
    mark = secrets.token_hex(3)
    settings = Settings(
        worker=0,
        url=place.url,
        table=place.table,
        schema=place.schema,
        key=f"sqllocks-demo:{mark}",
        ledger=f"sqllocks_demo_{mark}",
    )
    show = _Show(settings, workers, seconds, f"sqllocks demo: {workers} processes, one key, {name}")
    with Ledger(settings.url, settings.ledger, settings.schema) as ledger:
        try:
            with _explained("make its table"):
                ledger.create()
            return _play(show, ledger, signals)
        finally:
            signals.collect()  # what has begun to be cleaned up is cleaned up
            _remove(ledger, settings)


def _play(show: _Show, ledger: Ledger, signals: Signals) -> int:
    history = History()
    with show.view() as view:
        board = Board(show.workers, view.note)
        crew = Crew(show.settings, show.workers)
        script = Script(crew, board, history)
        stage = _Stage(crew, script, board, history, view)
        try:
            stage.run(show.seconds)
        finally:
            signals.collect()
            stage.clear()
        with _explained("read its table"):
            written = ledger.read()
        complaints = history.complaints(
            at_least=int(show.seconds / SECONDS_A_GRANT), frozen=script.frozen_token, ledger=written
        )
        view.finish(board, history.counts(), complaints)
    return exits.NO if complaints else exits.OK


@dataclass(frozen=True, slots=True)
class _Stage:
    """Lets everybody who takes part know what happens."""

    crew: Crew
    script: Script
    board: Board
    history: History
    view: View

    def run(self, seconds: float) -> None:
        self.crew.gather()
        limit = clock.now() + PATIENCE
        while not self.board.complete and clock.now() < limit:
            self._step()
        # from here: a busy machine may take its time to start so many processes
        self.view.begin()
        end = self.script.begin(seconds)
        self.crew.begin()
        while clock.now() < end or (not self.script.done and clock.now() < end + LATEST):
            self._step()

    def clear(self) -> None:
        for event in self.crew.end():
            if event.kind is not Kind.ENDED:
                self._take(event)
        self.board.end()

    def _step(self) -> None:
        event = self.crew.told(REFRESH)
        if event is not None:
            self._take(event)
            self.script.react(event)
        self.script.tick()
        self.view.refresh(self.board, self.history.counts())

    def _take(self, event: Event) -> None:
        self.history.add(event)
        self.board.add(event)


@contextmanager
def _explained(doing: str) -> Generator[None]:
    """Turn a database's error, here of the demo's own statements, into one of the library's."""
    try:
        yield
    except SQLAlchemyError as error:
        text = str(error).splitlines()[0]
        raise BackendUnavailable(f"the demo could not {doing}: {text}") from error


def _remove(ledger: Ledger, settings: Settings) -> None:
    try:
        ledger.remove(lock_table=settings.table, schema=settings.schema, key=settings.key)
    except SQLAlchemyError as error:
        text = str(error).splitlines()[0]
        messages.warn(f"the table {settings.ledger} of the demo could not be removed: {text}")
