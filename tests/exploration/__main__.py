"""Explore everything and tell how far it went: ``python -m tests.exploration [--depth] [DEPTH]``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial

from tests.exploration.catalogue import DEPTH, catalogue
from tests.exploration.explorer import Counterexample, Counts, explore
from tests.exploration.processes.catalogue import process_catalogue
from tests.exploration.processes.exploring import explore_processes


def main(arguments: list[str]) -> int:
    total, failed = Counts(0, 0, 0), 0
    started = time.process_time()
    depth = int(arguments[-1]) if arguments else DEPTH
    runs: dict[str, Callable[[], Counts]] = {
        name: partial(explore, scenario) for name, scenario in catalogue(depth).items()
    }
    for name, processes in process_catalogue(depth).items():
        runs[f"processes-{name}"] = partial(explore_processes, processes)
    for name, run in runs.items():
        before = time.process_time()
        try:
            counts = run()
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
