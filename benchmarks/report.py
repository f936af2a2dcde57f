"""The tables: one for the numbers to reach, and one for each question."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.contenders import CONNECTIONS, Family
from benchmarks.targets import Found, Verdict, verdicts

START, END = "<!-- benchmarks: made by make bench -->", "<!-- end of benchmarks -->"
TITLES = {
    "callers": "Acquire + release, callers in one process (cycles/s)",
    "processes": "Acquire + release, processes with one caller each (cycles/s together)",
    "keys": "64 asyncio callers that wait for their turn (cycles/s)",
    "hand-over": "From the release to the grant of a waiter in another process (ms)",
    "sqlite": "One SQLite file, slowest process as a share of the fastest",
}
FACTS = {
    "held": "Held leases",
    "table": "The lock table after many cycles",
}


def markdown(result: dict[str, Any]) -> str:
    """Return the whole report."""
    rows: list[Found] = result["rows"]
    parts = ["# Benchmarks", _machine(result), targets(rows)]
    parts += [
        "A value is the median of its turns, ± half the distance of the extremes. In brackets: sqllocks in "
        "the same case, form and run as a multiple of it. Those that need a connection for each statement or "
        f"each held lock have {CONNECTIONS} of them. Python 3.12 and later have all peers."
    ]
    for question, title in TITLES.items():
        for server in _different(row["server"] for row in rows if row["question"] == question):
            parts.append(f"## {title}: {server}\n\n{_grid(_of(rows, question, server))}")
    for question, title in FACTS.items():
        if any(row["question"] == question for row in rows):
            parts.append(f"## {title}\n\n{_facts([row for row in rows if row['question'] == question])}")
    parts += _left_out(rows)
    for title, text in result.get("others", {}).items():
        parts.append(f"## {title}\n\n{text}")
    return "\n\n".join(parts) + "\n"


def targets(rows: Sequence[Found]) -> str:
    """Return the table of the numbers to reach."""
    lines = ["| case | beside | to reach | measured | |", "|---|---|---|---|---|"]
    lines += [_line(verdict) for verdict in verdicts(rows)]
    return "\n".join(lines)


def _line(verdict: Verdict) -> str:
    least = f"{'≤' if verdict.at_most else '≥'} {verdict.target:g} {verdict.unit}".strip()
    if verdict.measured is None:
        return f"| {verdict.case} | {verdict.against} | {least} | not measured | |"
    told = "reached" if verdict.reached else "**not reached**"
    note = f" ({verdict.note})" if verdict.note else ""
    measured = f"{verdict.measured:.2f} {verdict.unit}".strip()
    return f"| {verdict.case} | {verdict.against}{note} | {least} | {measured} | {told} |"


def for_readme(result: dict[str, Any], plots: Iterable[Path]) -> str:
    """Return what stands between the markers of the README."""
    rows: list[Found] = result["rows"]
    parts = [_machine(result), targets(rows), _grid(_of(rows, "callers", "postgresql"))]
    parts += [f"![{path.stem.replace('_', ' ')}]({path})" for path in plots]
    return f"{START}\n\n" + "\n\n".join(parts) + f"\n\n{END}"


def refresh(readme: Path, text: str) -> None:
    """Put the text between the markers; raise ValueError where they are missing."""
    old = readme.read_text()
    before, start, rest = old.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise ValueError(f"{readme} has no line {START!r} with a later {END!r}")
    readme.write_text(before + text + after)


def _machine(result: dict[str, Any]) -> str:
    servers = ", ".join(f"{name} {version}" for name, version in result["servers"].items())
    return (
        f"{result['date']}, {result['cores']} cores, Python {result['python']}, {servers}; durable settings, "
        "loopback TCP, everything on this machine."
    )


def _of(rows: Sequence[Found], question: str, server: str) -> list[Found]:
    return [row for row in rows if row["question"] == question and row["server"] == server]


def _different(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


def _grid(rows: Sequence[Found]) -> str:
    """Return contenders down and cases across."""
    cases = _different(row["case"] for row in rows if row["case"])
    lines = ["| | " + " | ".join(cases) + " |", "|---|" + "---|" * len(cases)]
    for label in _different(row["label"] for row in rows):
        mine = {row["case"]: row for row in rows if row["label"] == label}
        cells = [_cell(mine.get(case), rows) for case in cases]
        if any(cells):
            lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(row: Found | None, rows: Sequence[Found]) -> str:
    if row is None:
        return ""
    if row["median"] is None:
        return "failed" if row["note"] else ""
    half = 50 * (row["spread"] or 0)
    told = f"{_number(row['median'])} ± {half:.0f} %"
    ours = _ours(row, rows)
    if ours is None or ours is row or not row["median"]:
        return told
    return f"{told} ({ours['median'] / row['median']:.2f})"


def _ours(row: Found, rows: Sequence[Found]) -> Found | None:
    """Return the row of sqllocks to compare with: the same driver, else the first of the same form."""
    if row["family"] == Family.OWN:
        return None
    same = [
        each
        for each in rows
        if each["case"] == row["case"]
        and each["family"] == Family.OWN
        and each["median"]
        and each["label"].rsplit(" ", 1)[-1] == row["label"].rsplit(" ", 1)[-1]
    ]
    driver: Callable[[Found], str] = lambda each: each["label"].rsplit(", ", 1)[-1]  # noqa: E731
    exact = [each for each in same if driver(each) == driver(row)]
    return next(iter(exact or same), None)


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _facts(rows: Sequence[Found]) -> str:
    units = _different(row["unit"] for row in rows if row["unit"])
    lines = ["| server | | case | " + " | ".join(units) + " |", "|---|---|---|" + "---|" * len(units)]
    for server, label, case in dict.fromkeys((row["server"], row["label"], row["case"]) for row in rows):
        mine = [row for row in rows if (row["server"], row["label"], row["case"]) == (server, label, case)]
        values = {row["unit"]: _number(row["median"]) for row in mine if row["median"] is not None}
        notes = [row["note"] for row in mine if row["note"]]
        cells = [values.get(unit, "") for unit in units]
        lines.append(f"| {server} | {label} | {case} | " + " | ".join(notes or cells) + " |")
    return "\n".join(lines)


def _left_out(rows: Sequence[Found]) -> list[str]:
    told = [row for row in rows if row["note"].startswith("failed")]
    if not told:
        return []
    lines = ["| contender | where | why |", "|---|---|---|"]
    for row in told:
        where = " ".join(word for word in (row["question"], row["server"], row["case"]) if word)
        lines.append(f"| {row['label']} | {where} | {row['note'].removeprefix('failed: ')} |")
    return ["## Not measured, and why\n\n" + "\n".join(lines)]
