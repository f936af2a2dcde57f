"""What processes do, and what may happen to them meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from sqllocks.backends.lease_table import LeaseTable
from sqllocks.core.holding import Holding
from sqllocks.core.leases import Leases
from sqllocks.core.lines import Lines
from sqllocks.dialects.base import FaultKind
from sqllocks.errors import LockError
from tests.exploration.families import Family
from tests.exploration.port import Form
from tests.exploration.processes.port import ProcessPort
from tests.exploration.processes.tasks import Task

__all__ = ["Budget", "Makes", "Program", "Scenario", "provider", "real"]

Program: TypeAlias = tuple[Task, ...]
"""The tasks of one process."""
Makes: TypeAlias = Callable[[ProcessPort, Family, str], tuple[Leases, Holding]]


class Budget(NamedTuple):
    """How often what may go wrong in one schedule."""

    faults: int = 0
    """Answers lost, statements lost, statements that land late."""
    interrupts: int = 0
    """Tasks that are cancelled."""
    deaths: int = 0
    stalls: int = 0
    """Times that everybody stands still, or a statement takes long: half a second, or past an expiry."""
    pins: int = 0
    """Row locks of a transaction of nobody's."""


def provider(
    port: ProcessPort,
    family: Family,
    name: str,
    *,
    core: type[Leases] = Leases,
    backend: type[LeaseTable] = LeaseTable,
    lines: type[Lines] = Lines,
) -> tuple[Leases, Holding]:
    """Return what a provider stands on; a mutant replaces a part of it."""
    leases = core(port, backend(port, family.capabilities), holder=name, lines=lines())
    return leases, leases.holding(port)


def real(port: ProcessPort, family: Family, name: str) -> tuple[Leases, Holding]:
    """Return the library as it is."""
    return provider(port, family, name)


@dataclass(frozen=True)
class Scenario:
    """Processes side by side on one database, within a budget."""

    family: Family
    programs: tuple[Program, ...]
    budget: Budget
    keys: tuple[str, ...] = ("k",)
    form: Form = Form.ASYNCIO
    kinds: tuple[FaultKind, ...] = (FaultKind.OTHER,)
    """Which faults there are."""
    late: bool = False
    """Whether a statement that was given up may still be carried out, later."""
    nap: float = 1.0
    """Shortest pause: a waiter that asks again 20 times is asked to do so a few times only."""
    makes: Makes = real
    expects: Callable[[Exception], bool] = lambda error: isinstance(error, LockError)
    """Whether a task may end with an error."""
