"""The stepping port: each await of the core stops until the explorer replies."""

from __future__ import annotations

import asyncio
import enum
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

from sqllocks.backends.port import Alarm, Event, Session
from sqllocks.dialects.base import Fault, FaultKind, LeaseDialect, Parameters, Result, Statement
from tests.exploration.asks import (
    Answered,
    Ask,
    Done,
    Failed,
    Interrupted,
    Join,
    Open,
    Query,
    Reply,
    Sleep,
    TimedOut,
)
from tests.exploration.families import Family

__all__ = ["Form", "SteppingPort", "Strand"]

T = TypeVar("T")


class Form(enum.Enum):
    """How the core is run, as far as an interruption shows it."""

    BLOCKING = "blocking"
    """An interruption comes from the keyboard and hits clean-ups as well."""
    ASYNCIO = "asyncio"
    """A cancellation never hits a clean-up, which is a task of its own."""


class Strand:
    """One coroutine that goes on by itself."""

    def __init__(self, number: int, work: Coroutine[Any, Any, Any]) -> None:
        self.number = number
        self.ask: Ask | None = None
        self.since = 0
        self.value: Any = None
        self.error: BaseException | None = None
        self._work = work

    @property
    def over(self) -> bool:
        return self.ask is None

    def resume(self, reply: Reply | None, now: int) -> None:
        """Go on until the next ask, or to the end."""
        self.since = now
        try:
            self.ask = self._work.send(reply)
        except StopIteration as stop:
            self.ask, self.value = None, stop.value
        except BaseException as error:
            self.ask, self.error = None, error

    def close(self) -> None:
        """Leave it where it is, as the end of a process does."""
        self._work.close()


class SteppingPort:
    """``IO`` for one call of one client; ``time``, in microseconds, is set by whoever resumes a strand."""

    def __init__(self, family: Family, form: Form) -> None:
        self.family = family
        self.form = form
        self.time = 0
        self.tried = 0
        """When the present try began: a waiter makes one after each wait for its event."""
        self.strands: list[Strand] = []
        self.queries: list[Query] = []
        self.idle = 1

    # -- what the core calls

    def now(self) -> float:
        return self.time / 1_000_000

    async def sleep(self, seconds: float) -> None:
        await self.ask(Sleep(seconds))

    async def shielded(self, work: Coroutine[Any, Any, T]) -> T | None:
        if self.form is Form.BLOCKING:
            return await work
        strand = self.spawn(work)
        if not strand.over and await self.ask(Join(strand.number)) == TimedOut():
            return None
        if strand.error is not None:
            raise strand.error
        value: T = strand.value
        return value

    def alarm(self, seconds: float, ring: Callable[[], None]) -> Alarm:
        raise NotImplementedError("no scenario has a keeper yet")

    def event(self) -> Event:
        return _Event(self)

    async def use(self, work: Callable[[Session], Coroutine[Any, Any, T]]) -> T:
        if self.idle:
            self.idle -= 1
        else:
            await self.ask(Open())
        try:
            value = await work(_Session(self))
        except Fault as fault:
            # the server answered, so the session is as good as before
            self.idle += fault.kind is FaultKind.CONFLICT
            raise
        self.idle += 1
        return value

    # -- what the stage calls

    async def ask(self, ask: Ask) -> Reply:
        """Stop until the world replies; a fault or an interruption is raised here."""
        reply = await _suspend(ask)
        if isinstance(reply, Failed):
            raise Fault(reply.kind, reply.kind.value, sent=reply.sent)
        if isinstance(reply, Interrupted):
            raise asyncio.CancelledError if self.form is Form.ASYNCIO else KeyboardInterrupt
        return reply

    def spawn(self, work: Coroutine[Any, Any, Any]) -> Strand:
        """Start a strand."""
        strand = Strand(len(self.strands), work)
        self.strands.append(strand)
        strand.resume(None, self.time)
        return strand

    def resume(self, number: int, reply: Reply) -> None:
        """Reply to a strand; whoever waits for its end goes on at once."""
        self.strands[number].resume(reply, self.time)
        for strand in self.strands:
            if isinstance(strand.ask, Join) and self.strands[strand.ask.strand].over:
                strand.resume(Done(), self.time)

    def close(self) -> None:
        """End all strands where they are."""
        for strand in self.strands:
            strand.close()


class _Session:
    """A session of the stepping port."""

    def __init__(self, port: SteppingPort) -> None:
        self._port = port
        self.locked: set[str] = set()

    @property
    def sql(self) -> LeaseDialect:
        return self._port.family.sql

    async def query(self, statement: Statement, parameters: Parameters) -> Result:
        idle = parameters.get("idle", 0)
        # a batch of one may have a statement of its own, which does the same
        query = Query(statement.name.removesuffix(" one"), *self._port.family.decoded(parameters), idle)
        self._port.queries.append(query)
        reply = await self._port.ask(query)
        assert isinstance(reply, Answered), reply
        return reply.result


class _Event:
    """What a waiter sleeps on; only the other strands of its own call could set it."""

    home = "the only one"

    def __init__(self, port: SteppingPort) -> None:
        self._port = port
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    async def wait(self, seconds: float) -> bool:
        if not self._is_set:
            await self._port.ask(Sleep(seconds))
        self._port.tried = self._port.time
        was_set, self._is_set = self._is_set, False
        return was_set


@types.coroutine
def _suspend(ask: Ask) -> Generator[Ask, Reply, Reply]:
    return (yield ask)
