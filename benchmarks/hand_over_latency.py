"""How long a released key takes to reach a waiter in another process.

    python -m benchmarks.hand_over_latency [--quick] [--redis URL] postgresql=URL …

The key is held for 30 to 60 ms, so that the waiter has settled down. The value is the time from the call of
release to the grant, in ms; by hand, the waiter asks every 10 ms. Prints rows as JSON.
"""

from __future__ import annotations

import random
import time

from benchmarks.command import main
from benchmarks.contenders import Family, Place
from benchmarks.teams import Team, all_entries, team
from benchmarks.turns import Row, Settings, told

ROUNDS = 20
MOST_SECONDS = 2.5
"""For one contender: some wait for half a second each time."""
HELD = 0.03


def measure(place: Place, settings: Settings) -> list[Row]:
    """Return the rows of one database."""
    rows = []
    rounds = 2 if settings.quick else ROUNDS
    with team(place, 2) as workers:
        for label, entry in all_entries(place).items():
            if entry.family in (Family.NOTHING, Family.BATCH):
                continue
            row = Row("hand-over", place.server, "2 processes", label, entry.family, "ms")
            with told(row):
                workers.tell_one(0, "open", label)
                workers.tell_one(1, "open", label)
                row.values = _hand_over(workers, label, rounds)
                workers.tell("close", label)
            rows.append(row)
    return rows


def _hand_over(workers: Team, label: str, rounds: int) -> list[float]:
    giver, waiter = (member.pipe for member in workers.members)
    took: list[float] = []
    until = time.monotonic() + MOST_SECONDS
    for number in range(rounds + 2):
        key = f"hand-over:{label}"
        workers.tell_one(0, "take", label, key)
        waiter.send(("wait", label, key))
        time.sleep(HELD * (1 + random.random()))
        giver.send(("give", label, key))
        got = workers.heard(1)
        released = workers.heard(0)
        if number >= 2:  # connections are opened, statements prepared
            took.append(max(0.0, got - released) * 1000)
        if time.monotonic() > until:
            break
    return took


if __name__ == "__main__":
    main(measure, __doc__)
