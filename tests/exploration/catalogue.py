"""The scenarios that are explored, by name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial

from sqllocks.dialects.base import FaultKind
from tests.exploration.families import FAMILIES, family
from tests.exploration.port import Form
from tests.exploration.programs import (
    Batches,
    Budget,
    Program,
    Scenario,
    acquire,
    break_lock,
    extend,
    release,
    wait_for,
)

__all__ = ["DEPTH", "MIDDLE", "SHARED", "SHORT", "WAITING", "catalogue"]

DEPTH = int(os.environ.get("SQLLOCKS_EXPLORE_DEPTH", "1"))
"""1 is what every test run can afford; each further one adds a fault, and 2 the longer programs."""

SHORT: tuple[Program, ...] = ((acquire(), release()), (acquire(),))
MIDDLE: tuple[Program, ...] = ((acquire(), extend(), release()), (acquire(),))
LONG: tuple[Program, ...] = ((acquire(), extend(), release()), (acquire(), release()))
STUBBORN: tuple[Program, ...] = ((acquire(), acquire(), release()), (acquire(),))
SHARED: tuple[Program, ...] = ((acquire(owner="shared"),), (acquire(owner="shared"),))
BROKEN: tuple[Program, ...] = ((acquire(), release()), (break_lock(), acquire()))
CROSSED: tuple[Program, ...] = ((acquire("a"), acquire("b"), release("a")), (acquire("b"), acquire("a")))
WAITING: tuple[Program, ...] = ((wait_for(wait=6.0),), (acquire(),))
THREE: tuple[Program, ...] = ((acquire(), release()), (acquire(),), (acquire(),))

ESSENTIAL = ("first-use", "faults", "interruption", "pins")
"""What is explored at depth 1 where another family has the same statements but for their answers."""


def catalogue(depth: int = DEPTH) -> dict[str, Scenario]:
    """Return every scenario at this depth."""
    return {
        f"{name}-{what}": scenario
        for name in FAMILIES
        for what, scenario in _on(name, max(depth - 1, 0))
        if depth > 1 or name != "mariadb" or what in ESSENTIAL
    }


def _on(name: str, more: int) -> Iterator[tuple[str, Scenario]]:
    base, usual, middle = family(name), LONG if more else SHORT, LONG if more else MIDDLE
    # where a first use takes more statements, it is a scenario of its own
    of = partial(Scenario, base, used=base.sql.insert is not None)
    yield "first-use", Scenario(base, usual, Budget(faults=1 + more))
    yield "faults", of(usual, Budget(faults=2 + more))
    yield "expiry", of(middle, Budget(faults=1 + more, expiries=1), drift=50)
    yield "stalls", of(usual, Budget(faults=1 + more, stalls=1))
    yield "interruption", of(usual, Budget(faults=1 + more, interrupts=1), Form.BLOCKING)
    # the second cancellation leaves the clean-up of the first behind
    yield "cancellation", of(STUBBORN, Budget(faults=more, interrupts=2), Form.ASYNCIO)
    yield "death", of(usual, Budget(faults=1 + more, deaths=1, expiries=1))
    yield "pins", of(usual, Budget(faults=more, pins=1, interrupts=1), nap=2.0)
    yield "pins-expiry", of(usual, Budget(faults=more, pins=1, expiries=1), nap=1.0)
    # a fault after which no fresh session is tried reaches the clean-up with one fault less
    stalls = int(more > 0 or name == "postgresql")
    kinds = (FaultKind.OTHER,) if stalls else (FaultKind.OTHER, FaultKind.GONE)
    yield "waiting", of(WAITING, Budget(faults=1 + more, stalls=stalls), nap=2.0, kinds=kinds)
    yield "shared-owner", of(SHARED, Budget(faults=1 + more, interrupts=1))
    yield "batches", of(middle, Budget(faults=1 + more), core=Batches)
    yield "break", of(BROKEN, Budget(faults=1 + more))
    yield "two-keys", of(CROSSED, Budget(faults=more, interrupts=1))
    yield "three-clients", of(THREE, Budget(faults=more, expiries=1))
