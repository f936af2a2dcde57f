"""The scenarios of processes that are explored, by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

from sqllocks.errors import BackendUnavailable
from tests.exploration.catalogue import DEPTH
from tests.exploration.families import FAMILIES, family
from tests.exploration.processes.combining import SLOW, shared_on
from tests.exploration.processes.programs import Budget, Program, Scenario
from tests.exploration.processes.tasks import TTL, Process

__all__ = ["extends", "process_catalogue", "scenarios_on"]

WORK = TTL / 2
"""Long enough for one renewal."""


async def holds(process: Process) -> None:
    """Hold a key over a renewal."""
    [lease] = await process.hold("k")
    async with process.block(lease):
        await process.work(WORK)
        process.check(lease)


async def holds_long(process: Process) -> None:
    """Hold a key past the time at which a renewal that hangs has cost it."""
    [lease] = await process.hold("k")
    async with process.block(lease):
        await process.work(2 * TTL)


async def takes(process: Process) -> None:
    """Take the key at any moment, if it is free."""
    await process.begin()
    [lease] = await process.hold("k", renew=False)
    async with process.block(lease):
        process.check(lease)


async def holds_briefly(process: Process) -> None:
    """Hold a key for less than a waiter's pause."""
    [lease] = await process.hold("k", renew=False)
    async with process.block(lease):
        await process.work(1.0)


async def holds_both(process: Process) -> None:
    """Hold two keys, whose renewals are due together."""
    leases = await process.hold("a", "b")
    async with process.block(*leases):
        await process.work(WORK)
        process.check(*leases)


async def takes_b(process: Process) -> None:
    await process.begin()
    [lease] = await process.hold("b", renew=False)
    await process.end(lease)


async def extends(process: Process) -> None:
    """Prolong and shorten while the keeper renews."""
    [lease] = await process.hold("k")
    async with process.block(lease):
        await process.work(TTL / 3)
        with suppress(BackendUnavailable):
            await process.extend(lease, TTL / 2)
        process.check(lease)
        await process.work(TTL / 4)
        process.check(lease)


async def waits(process: Process) -> None:
    """Wait for the key as long as it takes."""
    [lease] = await process.hold("k", wait=None, renew=False)
    async with process.block(lease):
        process.check(lease)


async def waits_a_while(process: Process) -> None:
    [lease] = await process.hold("k", wait=1.5, renew=False)
    async with process.block(lease):
        process.check(lease)


async def guards(process: Process) -> None:
    """Guard a transaction past the ttl, and work on."""
    [lease] = await process.hold("k", ttl=TTL / 2)
    async with process.block(lease):
        async with process.transaction(lease):
            await process.work(TTL * 3 / 4)
        process.check(lease)


async def releases_pinned(process: Process) -> None:
    """Give back while a guarded transaction is open."""
    [lease] = await process.hold("k", ttl=TTL / 2)
    async with process.transaction(lease):
        await process.release(lease)
        await process.work(TTL / 4)


async def takes_all(process: Process) -> None:
    """Take two keys or none."""
    await process.begin()
    await process.acquire_many("b", "a", "b")


async def holds_all(process: Process) -> None:
    """Wait for two keys."""
    leases = await process.hold("b", "a", wait=None, renew=False)
    async with process.block(*leases):
        process.check(*leases)


async def holds_at_least(process: Process) -> None:
    """Give back at once what stays taken for a while."""
    [lease] = await process.hold("k", at_least=1.0)
    await process.end(lease)


async def drops(process: Process) -> None:
    """Forget a lease."""
    [lease] = await process.hold("k")
    process.drop(lease)


async def closes(process: Process) -> None:
    """Shut down while a body runs."""
    await process.begin()
    await process.close(1.0)


async def purges(process: Process) -> None:
    await process.begin()
    await process.work(61.0)
    await process.purge(60.0)


async def takes_often(process: Process) -> None:
    """Take the key now and a minute later."""
    [lease] = await process.hold("k", renew=False)
    await process.end(lease)
    await process.work(61.0)
    [lease] = await process.hold("k", renew=False)
    await process.end(lease)


EVERYWHERE = ("keeper-faults", "guards", "pinned-release")
SOMEWHERE: Mapping[str, tuple[str, ...]] = {
    "mysql": (*EVERYWHERE, "two-keys", "batches", "at-least"),
    "sqlite": EVERYWHERE,
    "mariadb": (),
}
"""What is explored at depth 1 beside PostgreSQL, where everything is: what the statements decide."""


def process_catalogue(depth: int = DEPTH) -> dict[str, Scenario]:
    """Return every scenario at this depth."""
    more = max(depth - 1, 0)
    return {
        f"{name}-{what}": scenario
        for name in FAMILIES
        for what, scenario in (*scenarios_on(name, more), *shared_on(name, more))
        if depth > 1 or (what in SOMEWHERE.get(name, (what,)) and what not in SLOW)
    }


def scenarios_on(name: str, more: int) -> Iterator[tuple[str, Scenario]]:
    def of(
        *programs: Program, keys: str = "k", late: bool = False, nap: float = 1.0, **budget: int
    ) -> Scenario:
        return Scenario(base, programs, Budget(**budget), tuple(keys), late=late, nap=nap)

    base = family(name)
    held: tuple[Program, ...] = ((holds,), (takes,))
    yield "keeper", of(*held, faults=1 + more, stalls=1)
    yield "keeper-faults", of(*held, faults=2 + more, late=True)
    yield "keeper-cancelled", of(*held, faults=more, stalls=1, interrupts=1)
    yield "keeper-dies", of(*held, faults=more, stalls=1, deaths=1, late=True)
    yield "keeper-hangs", of((holds_long,), faults=more, stalls=1)
    yield "two-keys", of((holds_both,), (takes_b,), keys="ab", faults=1 + more, pins=more)
    yield "two-keys-pinned", of((holds_both,), keys="ab", pins=1, stalls=more)
    yield "extends", of((extends,), (takes,), faults=1 + more, stalls=more)
    yield "waiters", of((holds_briefly, waits, waits), nap=3.0, faults=more, interrupts=more)
    yield "waiters-cancelled", of((waits, waits), (holds_briefly,), nap=3.0, faults=more, interrupts=1)
    yield "waiters-abroad", of((waits, waits_a_while), (holds,), faults=1 + more)
    yield "guards", of((guards,), (takes,), faults=1 + more, stalls=more)
    yield "guards-stalled", of((guards,), (takes,), faults=more, stalls=1)
    yield "guards-dies", of((guards,), (takes,), faults=more, deaths=1, stalls=1)
    yield "pinned-release", of((releases_pinned,), (takes,), faults=1 + more, stalls=more)
    yield "batches", of((takes_all,), (takes_b,), keys="ab", faults=1 + more, interrupts=1, late=True)
    yield "batches-pinned", of((takes_all,), (takes_b,), keys="ab", faults=more, interrupts=1, pins=1)
    yield "hold-many", of((holds_all,), (holds_all,), keys="ab", faults=1 + more, interrupts=1)
    yield "at-least", of((holds_at_least,), (takes,), faults=1 + more, interrupts=1)
    yield "dropped", of((drops,), (takes,), faults=1 + more, stalls=1)
    yield "shutdown", of((holds, closes), (takes,), faults=1 + more, stalls=more)
    yield "purge", of((takes_often,), (purges,), faults=more, pins=1)
