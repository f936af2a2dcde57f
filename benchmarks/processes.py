"""Acquire + release by 1 to 8 processes with one caller each, and their keys.

    python -m benchmarks.processes [--quick] [--redis URL] postgresql=URL …

Prints rows as JSON; the value of a turn is what all processes did together.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from benchmarks.command import main
from benchmarks.contenders import Entry, Family, Place
from benchmarks.teams import Team, all_entries, team
from benchmarks.turns import Row, Settings, told

COUNTS = (1, 2, 4, 8)
LEFT_OUT = {"tooz"}  # a connection for each acquire, which says nothing of processes


def measure(place: Place, settings: Settings) -> Iterator[Row]:
    """Give the rows of one database."""
    counts = (2,) if settings.quick else COUNTS
    entries = [entry for entry in all_entries(place).values() if _asked(entry)]
    with team(place, counts[-1]) as workers:
        opened = []
        for entry in entries:
            row = Row("processes", place.server, "", entry.label, entry.family, "cycles/s")
            with told(row):
                for number in range(counts[-1]):  # one by one: some create their tables here
                    workers.tell_one(number, "open", entry.label)
                opened.append(entry)
            if row.note:
                yield row
        for count in counts:
            yield from _together(workers, opened, count, place.server, settings)


def _together(workers: Team, entries: list[Entry], count: int, server: str, settings: Settings) -> list[Row]:
    case = f"{count} process{'es' * (count > 1)}"
    rows = [Row("processes", server, case, each.label, each.family, "cycles/s") for each in entries]
    for number in range(min(settings.turns, 2)):
        at = number % len(rows)
        for row in rows[at:] + rows[:at]:
            if not row.note:
                with told(row):
                    row.values.append(sum(workers.turn(row.label, settings.seconds * 3 / 4, count)))
    print(f"  {case}", file=sys.stderr)
    return rows


def _asked(entry: Entry) -> bool:
    # with one caller a batch is a single statement, and one form is enough
    return entry.form == "threads" and entry.family is not Family.BATCH and entry.name not in LEFT_OUT


if __name__ == "__main__":
    main(measure, __doc__)
