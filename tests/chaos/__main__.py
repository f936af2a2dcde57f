"""`python -m tests.chaos --database postgresql --seconds 60 --seed 1`: exit code 0 where all rules held."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.chaos.plan import SABOTAGES, Plan
from tests.chaos.run import run

DATABASES = ("postgresql", "mysql", "mariadb", "sqlite")


def main(arguments: list[str] | None = None) -> int:
    """Run on each database that is named; keep the history of one that fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--database", choices=DATABASES, default="postgresql")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--keep", action="store_true", help="keep the history of a run that succeeds too")
    parser.add_argument("--sabotage", choices=SABOTAGES, default="", help="break the workers themselves")
    given = parser.parse_args(arguments)
    directory = Path(tempfile.mkdtemp(prefix="sqllocks-chaos-"))
    plan = Plan(
        given.database,
        directory,
        seconds=given.seconds,
        seed=random.randrange(10**6) if given.seed is None else given.seed,
        workers=given.workers,
        own_server=True,
        sabotage=given.sabotage,
    )
    sys.stdout.write(f"seed {plan.seed}\n")
    sys.stdout.flush()
    outcome = run(plan)
    sys.stdout.write(f"{outcome}\n")
    if outcome.violations or given.keep:
        sys.stdout.write(f"history: {directory}\n")
    else:
        shutil.rmtree(directory)
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    raise SystemExit(main())
