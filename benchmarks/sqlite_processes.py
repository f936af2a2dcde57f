"""A SQLite file used by 16 processes at once: is anybody starved, does anybody meet a busy error?

    python -m benchmarks.sqlite_processes [--quick] sqlite=URL

Each process takes and gives back a key of its own for some seconds. The value is the slowest process as a
share of the fastest; any error fails the row. Prints rows as JSON.
"""

from __future__ import annotations

import sys

from benchmarks.command import main
from benchmarks.contenders import Family, Place
from benchmarks.teams import all_entries, team
from benchmarks.turns import Row, Settings, told

PROCESSES = 16
SECONDS = 2.0


def measure(place: Place, settings: Settings) -> list[Row]:
    """Return one row for each contender."""
    rows = []
    size, turns, seconds = (4, 1, 0.2) if settings.quick else (PROCESSES, 3, SECONDS)
    entries = [
        each
        for each in all_entries(place).values()
        if each.form == "threads" and each.family in (Family.OWN, Family.SINGLE, Family.TABLE)
    ]
    with team(place, size) as workers:
        for entry in entries:
            row = Row(
                "sqlite", place.server, f"{size} processes", entry.label, entry.family, "slowest/fastest"
            )
            rates: list[float] = []
            with told(row):
                for number in range(size):
                    workers.tell_one(number, "open", entry.label)
                for _ in range(turns):
                    each = workers.turn(entry.label, seconds, size)
                    row.values.append(min(each) / max(each) if max(each) else 0.0)
                    rates.append(sum(each))
            row.more = {"cycles/s": rates}
            rows.append(row)
            print(f"  {entry.label}", file=sys.stderr)
    return rows


if __name__ == "__main__":
    main(measure, __doc__)
