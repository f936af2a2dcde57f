"""Plots as plain SVG: bars, and lines over the number of callers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from benchmarks.contenders import Family
from benchmarks.targets import Found

WIDTH = 760
LABELS = 250
COLOURS: dict[str, str] = {
    Family.OWN: "#1a6fb5",
    Family.SINGLE: "#9aa5b1",
    Family.BATCH: "#5f6b76",
    Family.NOTHING: "#c9d1d9",
    Family.TABLE: "#d08a2e",
    Family.SESSION: "#5a9b5f",
    Family.REDIS: "#b5483f",
}


def draw(rows: Sequence[Found], folder: Path) -> list[Path]:
    """Write the plots that the rows allow, and return their paths."""
    made = []
    many = _some(rows, "callers", "postgresql", "64 callers")
    if many:
        made.append(folder / "callers_64_postgresql.svg")
        made[-1].write_text(bars("64 callers, PostgreSQL: acquire + release, cycles/s", _sorted(many)))
    all_counts = [row for row in rows if row["question"] == "callers" and row["server"] == "postgresql"]
    if many:
        made.append(folder / "callers_postgresql.svg")
        made[-1].write_text(lines("PostgreSQL: cycles/s over callers in one process", all_counts))
    handed = _some(rows, "hand-over", "postgresql", "2 processes")
    if handed:
        made.append(folder / "hand_over_postgresql.svg")
        made[-1].write_text(
            bars("PostgreSQL: release to the waiter's grant, ms (median)", _sorted(handed)[::-1], log=True)
        )
    return made


def _some(rows: Sequence[Found], question: str, server: str, case: str) -> list[Found]:
    wanted = (question, server, case)
    return [
        row
        for row in rows
        if (row["question"], row["server"], row["case"]) == wanted
        and row["median"]
        and row["family"] != Family.NOTHING
    ]


def _sorted(rows: Sequence[Found]) -> list[Found]:
    return sorted(rows, key=lambda row: -float(row["median"]))


def bars(title: str, rows: Sequence[Found], *, log: bool = False) -> str:
    """Return a horizontal bar for each row, longest value at full width."""
    most = max(row["median"] for row in rows)
    least = min(row["median"] for row in rows) / 2
    room = WIDTH - LABELS - 80
    parts = [_text(10, 20, title, weight="bold")]
    for number, row in enumerate(rows):
        value, top = row["median"], 34 + 20 * number
        share = math.log(value / least) / math.log(most / least) if log else value / most
        parts += [
            _text(LABELS - 8, top + 12, row["label"], anchor="end"),
            f'<rect x="{LABELS}" y="{top}" width="{max(1.0, room * share):.1f}" height="15" '
            f'fill="{COLOURS[row["family"]]}"/>',
            _text(LABELS + room * share + 6, top + 12, _short(value)),
        ]
    return _svg(parts, 44 + 20 * len(rows))


def lines(title: str, rows: Sequence[Found]) -> str:
    """Return cycles/s over callers, both axes logarithmic, with the best of each family."""
    curves = {family: _curve(rows, family) for family in COLOURS}
    curves = {family: curve for family, curve in curves.items() if curve}
    values = [value for curve in curves.values() for value in curve.values()]
    low, high = math.log10(min(values) / 1.5), math.log10(max(values) * 1.5)
    left, right, top, bottom = 70, WIDTH - 200, 40, 340

    def across(callers: int) -> float:
        return left + (right - left) * math.log(callers) / math.log(256)

    def up(value: float) -> float:
        return bottom - (bottom - top) * (math.log10(value) - low) / (high - low)

    parts = [
        _text(10, 20, title, weight="bold"),
        _text((left + right) / 2, bottom + 34, "callers", anchor="middle"),
        *(_text(across(count), bottom + 16, str(count), anchor="middle") for count in (1, 4, 16, 64, 256)),
    ]
    for power in range(math.ceil(low), math.floor(high) + 1):
        y = up(10**power)
        parts += [
            f'<line x1="{left}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#e3e7eb"/>',
            _text(left - 8, y + 4, f"{10**power:,}", anchor="end"),
        ]
    ends: list[float] = []
    for family, curve in sorted(curves.items(), key=lambda each: -list(each[1].values())[-1]):
        points = [(across(callers), up(value)) for callers, value in curve.items()]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS[family]}" stroke-width="2"/>')
        y = max(points[-1][1], (ends[-1] + 16) if ends else 0.0)
        ends.append(y)
        name = (
            family
            if family in (Family.OWN, Family.SINGLE, Family.BATCH, Family.NOTHING)
            else f"best {family}"
        )
        parts.append(_text(right + 10, y + 4, name, colour=COLOURS[family]))
    return _svg(parts, bottom + 46)


def _curve(rows: Sequence[Found], family: str) -> dict[int, float]:
    best: dict[int, float] = {}
    for row in rows:
        if row["family"] == family and row["median"] and row["label"].endswith("asyncio"):
            callers = int(row["case"].split()[0])
            best[callers] = max(best.get(callers, 0.0), row["median"])
    return dict(sorted(best.items()))


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _text(x: float, y: float, text: str, **style: Any) -> str:
    anchor, weight = style.get("anchor", "start"), style.get("weight", "normal")
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" '
        f'fill="{style.get("colour", "#24292f")}">{escape(text)}</text>'
    )


def _svg(parts: Sequence[str], height: float) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" '
        f'font-family="sans-serif" font-size="12">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )
