"""Acquire + release by 1 to 256 callers in one process, each with a key of its own.

    python -m benchmarks.callers [--quick] [--redis URL] postgresql=URL mysql=URL …

Beside sqllocks, in turns of the same run: the driver with hand-written statements, ``SELECT 1``, and every
peer. Prints rows as JSON.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace

from benchmarks import by_hand, own, peers
from benchmarks.command import main
from benchmarks.contenders import Place
from benchmarks.turns import Ring, Row, Settings, compare, excluding

COUNTS = (1, 4, 16, 64, 256)
PEER_COUNTS = (1, 16, 64)
"""Peers need a connection, a thread or both for each caller; what they do with 4 or 256 says no more."""


def measure(place: Place, settings: Settings) -> Iterator[Row]:
    """Give the rows of one database."""
    ring = Ring(place)
    others, rows = peers.entries(place.server, redis=place.redis is not None)
    ours, failed = excluding(ring, own.entries(place.server) + by_hand.entries(place.server))
    others, unfit = excluding(ring, others)
    yield from rows + failed + unfit
    if place.server != "postgresql":  # most numbers to reach hang on that one
        settings = replace(settings, turns=min(settings.turns, 3))
    for callers in (64,) if settings.quick else COUNTS:
        peer = [each for each in others if callers in PEER_COUNTS and callers <= each.most]
        case = f"{callers} caller{'s' * (callers > 1)}"
        yield from compare(ring, [*ours, *peer], callers, settings, "callers", case)
        print(f"  {case}", file=sys.stderr)
    ring.close()


if __name__ == "__main__":
    main(measure, __doc__)
