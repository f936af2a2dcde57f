"""What clients do, and what may happen to them meanwhile."""

from __future__ import annotations

import enum
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from sqllocks.backends.base import LeaseBackend
from sqllocks.backends.lease_table import LeaseTable
from sqllocks.backends.port import IO
from sqllocks.core.leases import Leases
from sqllocks.dialects.base import FaultKind
from sqllocks.model import LockHandle, Seconds
from tests.exploration.families import Family
from tests.exploration.port import Form, SteppingPort

__all__ = [
    "TTL",
    "Batches",
    "Budget",
    "Kind",
    "Operation",
    "Program",
    "Scenario",
    "acquire",
    "break_lock",
    "extend",
    "margin",
    "release",
    "wait_for",
]

TTL = 4.0
"""Longer than the core goes on asking for anything."""


class Kind(enum.Enum):
    """The calls of a lease provider."""

    ACQUIRE = "acquire"
    WAIT = "require_acquire"
    EXTEND = "extend"
    RELEASE = "release"
    BREAK = "break_lock"


@dataclass(frozen=True, slots=True)
class Operation:
    """One call; a renewal or release uses the owner token of the client's last acquire of that key."""

    kind: Kind
    key: str
    ttl: float = TTL
    owner: str | None = None
    wait: float = 0

    @property
    def takes(self) -> bool:
        return self.kind in (Kind.ACQUIRE, Kind.WAIT)

    def run(self, leases: Leases, owner: str | None) -> Coroutine[Any, Any, object]:
        """Return the call itself; ``owner`` is the token that the client remembers."""
        match self.kind:
            case Kind.ACQUIRE:
                return leases.acquire(self.key, ttl=self.ttl, owner_token=self.owner)
            case Kind.WAIT:
                return leases.require_acquire(self.key, ttl=self.ttl, owner_token=self.owner, wait=self.wait)
            case Kind.BREAK:
                return leases.break_lock(self.key)
        assert owner is not None
        if self.kind is Kind.EXTEND:
            return leases.extend(self.key, owner_token=owner, ttl=self.ttl)
        return leases.release(self.key, owner_token=owner)

    def __str__(self) -> str:
        return f"{self.kind.value} {self.key}"


Program: TypeAlias = tuple[Operation, ...]


def acquire(key: str = "k", *, ttl: float = TTL, owner: str | None = None) -> Operation:
    return Operation(Kind.ACQUIRE, key, ttl, owner)


def wait_for(key: str = "k", *, wait: float, ttl: float = TTL) -> Operation:
    return Operation(Kind.WAIT, key, ttl, wait=wait)


def extend(key: str = "k", *, ttl: float = TTL) -> Operation:
    return Operation(Kind.EXTEND, key, ttl)


def release(key: str = "k") -> Operation:
    return Operation(Kind.RELEASE, key)


def break_lock(key: str = "k") -> Operation:
    return Operation(Kind.BREAK, key)


class Budget(NamedTuple):
    """How often what may go wrong in one schedule."""

    faults: int = 0
    """Answers lost, statements lost, statements that land late, conflicts."""
    interrupts: int = 0
    deaths: int = 0
    stalls: int = 0
    """Pauses longer than the core goes on asking, but shorter than a ttl."""
    expiries: int = 0
    """Jumps to the moment at which a lease ends."""
    pins: int = 0
    """Rows, or the whole file, locked by somebody's open transaction."""


def margin(ttl: float) -> float:
    """Return what a holder takes off the ttl, because clocks do not run alike."""
    return min(1.0, ttl / 10)


Makes: TypeAlias = Callable[[SteppingPort, Family], tuple[IO, LeaseBackend]]


def real(port: SteppingPort, family: Family) -> tuple[IO, LeaseBackend]:
    """Return what the core stands on."""
    return port, LeaseTable(port, family.capabilities)


class Batches(Leases):
    """Every call as a batch of one."""

    async def acquire(self, lock_key: str, *, ttl: Seconds, owner_token: str | None = None) -> LockHandle:
        return (await self.acquire_many([lock_key], ttl=ttl, owner_token=owner_token))[0]

    async def extend(self, lock_key: str, *, owner_token: str, ttl: Seconds) -> LockHandle | None:
        return (await self.extend_many([lock_key], owner_token=owner_token, ttl=ttl))[0]

    async def release(self, lock_key: str, *, owner_token: str) -> bool:
        return (await self.release_many([lock_key], owner_token=owner_token))[0]


@dataclass(frozen=True)
class Scenario:
    """Programs side by side on one database, within a budget."""

    family: Family
    programs: tuple[Program, ...]
    budget: Budget
    form: Form = Form.ASYNCIO
    kinds: tuple[FaultKind, ...] = (FaultKind.GONE, FaultKind.CONFLICT)
    """Which faults there are."""
    late: bool = True
    """Whether a statement that was given up may still be carried out, later."""
    used: bool = False
    """Whether the keys have been used before, so that their rows exist."""
    nap: float = 0.25
    """Shortest pause: a core that asks again 20 times is asked to do so a few times only."""
    drift: int = 0
    """How much faster the database's clock runs than the clients', in thousandths."""
    makes: Makes = real
    core: type[Leases] = Leases
    trusted: Callable[[float], float] = field(default=lambda ttl: ttl - margin(ttl))
    """How long a holder trusts a grant from the moment before it asked."""

    @property
    def keys(self) -> list[str]:
        return sorted({operation.key for program in self.programs for operation in program})
