"""Explore everything and tell how far it went: ``python -m tests.exploration [DEPTH]``."""

from __future__ import annotations

import sys
import time

from tests.exploration.catalogue import DEPTH, catalogue
from tests.exploration.explorer import Counterexample, Counts, explore


def main(arguments: list[str]) -> int:
    total, failed = Counts(0, 0, 0), 0
    started = time.process_time()
    for name, scenario in catalogue(int(arguments[0]) if arguments else DEPTH).items():
        before = time.process_time()
        try:
            counts = explore(scenario)
        except Counterexample as counterexample:
            failed += 1
            _say(f"{name}: {counterexample}")
        else:
            total += counts
            _say(f"{name}: {counts} ({time.process_time() - before:.1f} s)")
    _say(f"total: {total} ({time.process_time() - started:.1f} s), {failed} with a violation")
    return 1 if failed else 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
