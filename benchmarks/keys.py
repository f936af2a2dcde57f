"""64 asyncio callers and 1, 100, 1,000 or 10,000 keys, waiting where a key is held.

    python -m benchmarks.keys [--quick] [--redis URL] postgresql=URL …

With one key this is 64 waiters who pass it on. Each caller goes through the keys from a place of its own.
Prints rows as JSON.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.command import main
from benchmarks.contenders import Asyncio, Entry, Family, Place
from benchmarks.teams import all_entries
from benchmarks.turns import Ring, Row, Settings, all_of, told

CALLERS = 64
COUNTS = (1, 100, 1_000, 10_000)
DRIVERS = {"asyncpg", "aiomysql", "aiosqlite", "redis"}
LONGEST = 4.0
"""A caller that waits longer than this makes the turn fail."""


def measure(place: Place, settings: Settings) -> Iterator[Row]:
    """Give the rows of one database."""
    ring = Ring(place)
    entries = [each for each in all_entries(place).values() if _asked(each)]
    opened: dict[str, Any] = {}
    for entry in entries:
        row = Row("keys", place.server, "", entry.label, entry.family, "cycles/s")
        with told(row):
            opened[entry.label] = ring.open(entry, CALLERS)
        if row.note:
            yield row
    for count in (100,) if settings.quick else COUNTS:
        keys = [f"keys:{number}" for number in range(count)]
        yield from _passed_around(
            ring, [each for each in entries if each.label in opened], opened, keys, settings
        )
        print(f"  {count} keys", file=sys.stderr)
    for made in opened.values():
        ring.do(made, "close")
    ring.close()


def _passed_around(
    ring: Ring, entries: list[Entry], opened: dict[str, Any], keys: list[str], settings: Settings
) -> list[Row]:
    case = f"{len(keys):,} key{'s' * (len(keys) > 1)}"
    rows = [Row("keys", ring.place.server, case, each.label, each.family, "cycles/s") for each in entries]
    for turn in range(min(settings.turns, 2)):
        at = turn % len(rows)
        for row in rows[at:] + rows[:at]:
            if not row.note:
                with told(row):
                    # new keys make new rows: the first turn is for them
                    if turn == 0:
                        ring.run(_turn(opened[row.label], keys, settings.seconds / 4))
                    row.values.append(ring.run(_turn(opened[row.label], keys, settings.seconds)))
    return rows


async def _turn(made: Asyncio, keys: list[str], seconds: float) -> float:
    async def call(number: int) -> int:
        count, at = 0, number * len(keys) // CALLERS
        while time.perf_counter() < until:
            key = keys[at % len(keys)]
            async with asyncio.timeout(LONGEST):
                taken = await made.wait(number, key)
            await made.give(number, key, taken)
            count, at = count + 1, at + 1
        return count

    began = time.perf_counter()
    until = began + seconds
    return sum(await all_of(call, CALLERS)) / (time.perf_counter() - began)


def _asked(entry: Entry) -> bool:
    kinds = (Family.OWN, Family.SINGLE, Family.TABLE, Family.SESSION, Family.REDIS)
    return entry.form == "asyncio" and entry.family in kinds and entry.driver in DRIVERS


if __name__ == "__main__":
    main(measure, __doc__)
