"""The combining queue under the explorer: its senders are strands, its callers wait for events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqllocks.backends.base import Answers, LeaseBackend
from sqllocks.backends.lease_table import LeaseTable
from sqllocks.core.combining import Call, Kind, Queue
from sqllocks.core.holding import Holding
from sqllocks.core.leases import Leases
from sqllocks.core.lines import Lines
from sqllocks.dialects.base import FaultKind, Want
from sqllocks.runtime.combining import Combiner, own
from tests.exploration.families import Family, family
from tests.exploration.processes.port import FOREVER, ProcessPort
from tests.exploration.processes.programs import Budget, Program, Scenario
from tests.exploration.processes.tasks import TTL, Process

__all__ = ["SLOW", "SteppingCombiner", "combined", "shared_on"]


class SteppingCombiner(Combiner):
    """What the forms do around the queue, step by step; queue and fate of a batch are the real ones."""

    limit = 1
    queue = Queue

    def __init__(self, port: ProcessPort, backend: LeaseBackend) -> None:
        super().__init__(backend)
        self._port = port
        self._queue = self.queue(self.limit)

    def forget_parent(self) -> None:
        raise NotImplementedError("no scenario forks")

    async def _call(self, kind: Kind, wants: Sequence[Want], *, values: bool = True) -> Answers:
        queue = self._queue
        if queue.idle:
            flight = object()
            queue.start(flight, wants)
            try:
                answers = await self._send(kind, wants, values=values)
            except GeneratorExit:  # the process has ended
                raise
            except BaseException:
                self.land(flight)
                raise
            self.land(flight)
            return answers
        answered = self._port.event()
        call = Call(kind, wants, values, answered)
        queue.add(call)
        try:
            self.pump()
            await answered.wait(FOREVER)
        except BaseException:
            queue.drop(call)
            raise
        if call.error is not None:
            raise own(call.error)
        return call.answers or {}

    def land(self, flight: object) -> None:
        """Note the end of a statement, and send the next one."""
        self._queue.finish(flight)
        self.pump()

    def pump(self) -> None:
        """Send what can go."""
        while batch := self._queue.next():
            self._port.spawn(self._fly(batch))

    async def _fly(self, batch: Sequence[Call]) -> None:
        await self._serve(batch)
        for call in batch:
            call.caller.set()
        self.land(batch[0])


def combined(
    port: ProcessPort, family: Family, name: str, *, combiner: type[SteppingCombiner] = SteppingCombiner
) -> tuple[Leases, Holding]:
    """Return a provider whose callers share statements."""
    backend = combiner(port, LeaseTable(port, family.capabilities))
    leases = Leases(port, backend, holder=name, lines=Lines())
    return leases, leases.holding(port)


async def takes_a(process: Process) -> None:
    """Take a key at once."""
    [lease] = await process.hold("a", renew=False)
    async with process.block(lease):
        process.check(lease)


async def takes_b(process: Process) -> None:
    [lease] = await process.hold("b", renew=False)
    async with process.block(lease):
        process.check(lease)


async def holds_c(process: Process) -> None:
    """Hold a key over a renewal."""
    [lease] = await process.hold("c")
    async with process.block(lease):
        await process.work(TTL / 2)
        process.check(lease)


async def takes_both(process: Process) -> None:
    """Take two keys or none."""
    await process.acquire_many("b", "a")


async def keeps_d(process: Process) -> None:
    """Take a key for good, so that those who come meanwhile share the next statement."""
    await process.acquire_many("d")


SLOW = ("shared-one-key", "shared-keys", "shared-renewals")
"""These take up to a minute each: not at depth 1, and at greater depths as they are."""


def shared_on(name: str, more: int) -> Iterator[tuple[str, Scenario]]:
    """Return the scenarios of shared statements on a family of databases."""
    base = family(name)

    def of(*programs: Program, keys: str, late: bool = False, **budget: int) -> Scenario:
        # with another process, one may take what was given back while the answer was lost
        kinds = (FaultKind.OTHER,) if len(programs) > 1 else (FaultKind.GONE, FaultKind.OTHER)
        return Scenario(base, programs, Budget(**budget), tuple(keys), kinds=kinds, late=late, makes=combined)

    yield "shared", of((keeps_d, takes_a, takes_b), keys="abd", faults=1 + more, interrupts=more)
    yield "shared-cancelled", of((keeps_d, takes_a, takes_b), keys="abd", faults=more, interrupts=1 + more)
    yield "shared-pinned", of((keeps_d, takes_a, takes_b), keys="abd", pins=1, faults=more)
    yield "shared-abroad", of((takes_a, takes_b), (takes_b,), keys="ab", faults=1 + more, late=True)
    yield "shared-one-key", of((takes_a, takes_a, takes_a), keys="a", faults=1, interrupts=1)
    yield "shared-keys", of((takes_a, takes_b, takes_both), keys="ab", faults=1)
    yield "shared-renewals", of((holds_c, takes_a, takes_b), keys="abc", faults=1)
