"""The lock table after 100,000 cycles of 64 callers: its size, and the updates that stayed in their page.

    python -m benchmarks.table [--quick] postgresql=URL …

Beside it the hand-written batch loop on a table with the same settings. Prints rows as JSON.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from sqlalchemy import create_engine, make_url, text

from benchmarks import by_hand, own
from benchmarks.command import main
from benchmarks.contenders import Asyncio, AsyncioLoop, Entry, Family, Place
from benchmarks.own import BLOCKING
from benchmarks.turns import Ring, Row, Settings, all_of, told
from tests.servers import url_for

CALLERS = 64
CYCLES = {"postgresql": 100_000}
ELSEWHERE = 20_000
QUICK_CYCLES = 640
DRIVERS = {"asyncpg", "aiomysql", "aiosqlite"}
TABLES = {Family.OWN: "core_locks", Family.BATCH: "by_hand"}
SETTLE = 1.5
"""Seconds until PostgreSQL's sessions have told their counts."""

_POSTGRESQL = """
SELECT pg_total_relation_size(relid) / 1024.0 AS size, n_tup_upd AS updates, n_tup_hot_upd AS in_page
FROM pg_stat_user_tables WHERE relname = :name
"""
_MYSQL = """
SELECT (data_length + index_length) / 1024 AS size, 0 AS updates, 0 AS in_page
FROM information_schema.tables WHERE table_schema = database() AND table_name = :name
"""
_SQLITE = """
SELECT page_count * page_size / 1024.0 AS size, 0 AS updates, 0 AS in_page
FROM pragma_page_count, pragma_page_size WHERE :name <> ''
"""
_SQL = {"postgresql": _POSTGRESQL, "mysql": _MYSQL, "mariadb": _MYSQL, "sqlite": _SQLITE}


def measure(place: Place, settings: Settings) -> list[Row]:
    """Return the rows of one database."""
    cycles = QUICK_CYCLES if settings.quick else CYCLES.get(place.server, ELSEWHERE)
    ring = Ring(place)
    rows: list[Row] = []
    for entry in own.entries(place.server) + by_hand.entries(place.server):
        if entry.family in TABLES and entry.form == "asyncio" and entry.driver in DRIVERS:
            rows += _worn(ring, entry, cycles)
            print(f"  {entry.label}", file=sys.stderr)
    ring.close()
    return rows


def _worn(ring: Ring, entry: Entry, cycles: int) -> list[Row]:
    case = f"{cycles:,} cycles, {CALLERS} keys"
    row = Row("table", ring.place.server, case, entry.label, entry.family, "")
    with told(row):
        made: Any = ring.open(entry, CALLERS)
        began = time.perf_counter()
        ring.run(_go_on(made, cycles))
        rate = cycles / (time.perf_counter() - began)
        ring.do(made, "close")
        time.sleep(SETTLE)
        found = _look(ring.place, TABLES[entry.family])
        values = {"cycles/s": rate, "KiB": float(found.size)}
        if found.updates:
            values["% in page"] = 100 * found.in_page / found.updates
        server, label, family = row.server, row.label, row.family
        return [Row("table", server, case, label, family, unit, [value]) for unit, value in values.items()]
    return [row]


def _look(place: Place, name: str) -> Any:
    engine = create_engine(url_for(make_url(place.url), BLOCKING[place.server]))
    with engine.connect() as connection:
        found = connection.execute(text(_SQL[place.server]), {"name": name}).one()
    engine.dispose()
    return found


async def _go_on(made: Asyncio, cycles: int) -> float:
    keys = [f"table:{number}" for number in range(CALLERS)]
    if isinstance(made, AsyncioLoop):
        for _ in range(cycles // CALLERS):
            await made.give_all(keys, await made.take_all(keys))
        return float(cycles)

    async def call(number: int) -> int:
        for _ in range(cycles // CALLERS):
            await made.give(number, keys[number], await made.take(number, keys[number]))
        return cycles // CALLERS

    return float(sum(await all_of(call, CALLERS)))


if __name__ == "__main__":
    main(measure, __doc__)
