"""The numbers to reach, and what a run says of them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.contenders import Family

Found = dict[str, Any]
"""One row, as it stands in the JSON file."""


@dataclass(frozen=True)
class Verdict:
    """One number to reach."""

    case: str
    against: str
    target: float
    measured: float | None
    at_most: bool = False
    unit: str = ""
    note: str = ""

    @property
    def reached(self) -> bool | None:
        """Tell whether it was reached; None where it was not measured."""
        if self.measured is None:
            return None
        return self.measured <= self.target if self.at_most else self.measured >= self.target


class Rows:
    """The rows of a run, to be looked up."""

    def __init__(self, rows: Sequence[Found]) -> None:
        self._rows = [row for row in rows if row["median"] is not None]

    def some(self, question: str, server: str, case: str, family: str) -> list[Found]:
        """Return the rows of a family in one case."""
        wanted = (question, server, case, family)
        return [
            row
            for row in self._rows
            if (row["question"], row["server"], row["case"], row["family"]) == wanted
        ]

    def one(self, question: str, server: str, case: str, family: str, ending: str) -> Found | None:
        """Return the row whose label ends like this."""
        found = [row for row in self.some(question, server, case, family) if row["label"].endswith(ending)]
        return found[0] if found else None


def verdicts(rows: Sequence[Found]) -> list[Verdict]:
    """Return every number to reach, with what was measured."""
    found = Rows(rows)
    return [
        *_one_caller(found),
        *_many(found),
        *_best_peers(found),
        _sqlite(found),
        *_held(found),
    ]


def _ratio(found: Rows, server: str, callers: str, family: Family, driver: str) -> float | None:
    ours = found.one("callers", server, callers, Family.OWN, f"sqllocks, {driver}")
    theirs = found.one("callers", server, callers, family, driver)
    return _quotient(ours, theirs)


def _quotient(ours: Found | None, theirs: Found | None) -> float | None:
    # of the turns that followed each other: the disk's pace changes twofold within a run
    found = ratios(ours, theirs) if ours and theirs else []
    return statistics.median(found) if found else None


def ratios(ours: Found, theirs: Found) -> list[float]:
    """Return the ratio of each pair of turns that followed each other."""
    return [a / b for a, b in zip(ours["values"], theirs["values"], strict=False) if b]


def _one_caller(found: Rows) -> list[Verdict]:
    cases = [("postgresql", each, 1.0) for each in ("asyncpg asyncio", "psycopg threads", "psycopg asyncio")]
    cases += [(server, "pymysql threads", 0.85) for server in ("mysql", "mariadb")]
    return [
        Verdict(
            f"{server}, {driver}, 1 caller",
            "the driver, two hand-written statements",
            target,
            _ratio(found, server, "1 caller", Family.SINGLE, driver),
        )
        for server, driver, target in cases
    ]


def _many(found: Rows) -> list[Verdict]:
    cases = [
        ("postgresql", "asyncpg asyncio", 64, 0.7),
        ("postgresql", "asyncpg asyncio", 256, 0.7),
        ("postgresql", "psycopg threads", 64, 0.45),
    ]
    for server in ("mysql", "mariadb"):
        cases += [(server, f"{driver} asyncio", 64, 0.6) for driver in ("aiomysql", "asyncmy")]
    return [
        Verdict(
            f"{server}, {driver}, {callers} callers",
            "a hand-written batch loop",
            target,
            _ratio(found, server, f"{callers} callers", Family.BATCH, driver),
        )
        for server, driver, callers, target in cases
    ]


def _best_peers(found: Rows) -> list[Verdict]:
    case = ("callers", "postgresql", "64 callers")
    ours = found.one(*case, Family.OWN, "sqllocks, asyncpg asyncio")
    made = []
    for family, target in ((Family.TABLE, 6.0), (Family.SESSION, 2.0)):
        rivals = found.some(*case, family)
        best = max(rivals, key=lambda row: float(row["median"]), default=None)
        name = f"best {family} peer" + (f" ({best['label']})" if best else "")
        made.append(Verdict("postgresql, asyncpg asyncio, 64 callers", name, target, _quotient(ours, best)))
    redis = found.one(*case, Family.REDIS, "redis-py Lock, redis asyncio")
    measured = _quotient(ours, redis)
    made.append(Verdict("postgresql, asyncpg asyncio, 64 callers", "redis-py Lock, asyncio", 2.0, measured))
    return made


def _sqlite(found: Rows) -> Verdict:
    row = found.one("sqlite", "sqlite", "16 processes", Family.OWN, "threads")
    # any error, a busy one too, would have left no values
    worst = min(row["values"]) if row and not row["note"] else None
    what = "slowest process of the fastest, worst turn, no busy error"
    return Verdict("sqlite, 16 processes on one file", what, 0.25, worst)


def _held(found: Rows) -> list[Verdict]:
    made = []
    for server in ("postgresql",):
        for count in ("10,000", "100,000"):
            rows = {row["unit"]: row for row in found.some("held", server, f"{count} held", Family.OWN)}
            size = rows.get("KiB each")
            made.append(
                Verdict(
                    f"{server}, {count} held leases",
                    "memory of each",
                    2.0,
                    size["median"] if size else None,
                    at_most=True,
                    unit="KiB",
                )
            )
        lost = size["more"]["lost"] if size else None
        made.append(Verdict(f"{server}, 100,000 held, ttl 60 s", "leases lost", 0.0, lost, at_most=True))
    return made
