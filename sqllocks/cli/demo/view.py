"""How the demo looks: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Protocol, Self

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from sqllocks.cli.demo.board import Board, Mark, Row, State
from sqllocks.cli.demo.events import TTL
from sqllocks.cli.demo.history import Counts
from sqllocks.cli.messages import masked, printable
from sqllocks.runtime import clock

__all__ = ["LiveView", "PlainView", "View"]

REFRESH = 0.1
LINES = 7
BAR = 8
WITH_A_FRAME = 96
"""Columns that the table needs to have a frame; without one it fits into 80."""
STYLES = {
    State.HOLDING: "bold green",
    State.WAITING: "dim",
    State.FROZEN: "bold cyan",
    State.KILLED: "bold red",
}


class View(Protocol):
    """What the demo is shown on, as a context manager."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def begin(self) -> None:
        """Count the time from now on."""
        ...

    def note(self, text: str, mark: Mark) -> None:
        """Tell that something happened; ``mark`` is how it stands out."""
        ...

    def refresh(self, board: Board, counts: Counts) -> None:
        """Show how it stands, unless that was done a moment ago."""
        ...

    def finish(self, board: Board, counts: Counts, complaints: Sequence[str]) -> None:
        """Show the end: the counts, and what was not as promised."""
        ...


class PlainView:
    """A line for each notable thing, and the counts at the end."""

    def __init__(self, title: str) -> None:
        self._start = clock.now()
        print(title, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def begin(self) -> None:
        self._start = clock.now()

    def note(self, text: str, mark: Mark) -> None:
        print(f"{clock.now() - self._start:5.1f} s  {masked(printable(text))}", flush=True)

    def refresh(self, board: Board, counts: Counts) -> None:
        pass

    def finish(self, board: Board, counts: Counts, complaints: Sequence[str]) -> None:
        for name, count in _totals(counts):
            print(f"{name}: {count}")
        print(_verdict(complaints), flush=True)


class LiveView:
    """A table that moves, with the last lines under it."""

    def __init__(self, title: str, seconds: float, console: Console) -> None:
        self._title = title
        self._seconds = seconds
        self._start = self._shown = 0.0
        self._lines: deque[Text] = deque(maxlen=LINES)
        self._story: deque[Text] = deque(maxlen=LINES)
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def begin(self) -> None:
        self._start = clock.now()

    def note(self, text: str, mark: Mark) -> None:
        line = Text(f"{clock.now() - self._start:5.1f} s  " if self._start else "", "dim")
        line.append(masked(printable(text)), mark.value)
        self._lines.append(line)
        if mark is not Mark.ROUTINE:
            self._story.append(line)

    def refresh(self, board: Board, counts: Counts) -> None:
        if clock.now() - self._shown >= REFRESH:
            left = f"{self._left():.0f} s to go" if self._start else "the processes start"
            self._show(board, counts, Text(f"{left}, Ctrl-C ends it", "dim"))

    def finish(self, board: Board, counts: Counts, complaints: Sequence[str]) -> None:
        self._lines = self._story  # what stays on the screen is what a spectator came for
        self._show(board, counts, Text(_verdict(complaints), "bold red" if complaints else "bold green"))

    def _left(self) -> float:
        return max(self._start + self._seconds - clock.now(), 0)

    def _show(self, board: Board, counts: Counts, last: Text) -> None:
        self._shown = clock.now()
        lines = [*self._lines, *[Text()] * (LINES - len(self._lines))]
        parts: list[RenderableType] = [
            Text(self._title, "bold"),
            _table(board.rows.values(), self._live.console.width),
            *(Text.assemble("  ", line, overflow="ellipsis", no_wrap=True) for line in lines),
            Padding(_totals_line(counts), (1, 0, 0, 2)),
            Padding(last, (0, 0, 0, 2)),
        ]
        self._live.update(Group(*parts), refresh=True)


def _table(rows: Iterable[Row], width: int) -> Table:
    if width >= WITH_A_FRAME:
        table = Table(box=box.ROUNDED, border_style="dim", header_style="bold")
    else:
        table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold underline")
    table.add_column("worker", justify="right")
    table.add_column("pid", justify="right")
    table.add_column("state", min_width=8)
    table.add_column("token", justify="right", min_width=16)
    table.add_column("lease left", min_width=BAR + 6)
    for heading in ("grants", "writes", "refused"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            str(row.worker),
            str(row.pid or ""),
            Text(row.state, STYLES.get(row.state, "dim")),
            Text(str(row.token or ""), STYLES.get(row.state, "")),
            _lease_left(row),
            str(row.grants),
            str(row.writes),
            Text(str(row.refused), "bold green" if row.refused else ""),
        )
    return table


def _lease_left(row: Row) -> Text:
    if row.token is None:
        return Text()
    left = row.until - clock.now()
    if left <= 0:
        return Text("over", "bold red")
    full = min(round(left / TTL * BAR), BAR)
    style = STYLES.get(row.state, "")
    return Text.assemble(("━" * full, style), ("─" * (BAR - full), "dim"), f" {left:.1f} s")


def _totals(counts: Counts) -> list[tuple[str, int]]:
    return [
        ("grants", counts.grants),
        ("overlaps", counts.overlaps),
        ("stale writes refused", counts.refused),
        ("kills", counts.kills),
        ("freezes", counts.freezes),
    ]


def _totals_line(counts: Counts) -> Text:
    return Text(" · ").join(
        Text.assemble(f"{name} ", (str(count), "bold")) for name, count in _totals(counts)
    )


def _verdict(complaints: Sequence[str]) -> str:
    if not complaints:
        return "As promised: one holder at a time, rising tokens, the late write refused."
    return f"NOT as promised: {'; '.join(complaints)}."
