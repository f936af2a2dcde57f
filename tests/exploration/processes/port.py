"""The stepping port of a whole process: many strands, a keeper, events and alarms."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from sqllocks.backends.port import Event
from tests.exploration.asks import Ask, Sleep, Wait
from tests.exploration.families import Family
from tests.exploration.port import Form, SteppingPort, Strand

__all__ = ["FOREVER", "KEEPER", "ProcessPort", "due", "later"]

FOREVER = 3600.0
"""Nobody sleeps as long as this, unless it is to be woken."""


KEEPER = 1
"""The event that the keeper sleeps on."""


@dataclass(slots=True)
class _Alarm:
    due: int
    ring: Callable[[], None]
    over: bool = False

    def cancel(self) -> None:
        self.over = True


class ProcessPort(SteppingPort):
    """``IO`` and ``Background`` for all strands of one process."""

    linger = 0.0

    def __init__(self, family: Family, form: Form) -> None:
        super().__init__(family, form)
        self.alarms: list[_Alarm] = []
        self.flags: set[int] = set()
        """The events that are set."""
        self.keeper: Strand | None = None
        self._events = KEEPER

    # -- what the core calls

    def alarm(self, seconds: float, ring: Callable[[], None]) -> _Alarm:
        alarm = _Alarm(later(self.time, seconds), ring)
        self.alarms.append(alarm)
        return alarm

    def event(self) -> Event:
        self._events += 1
        return _Event(self, self._events)

    def ensure(self, run: Callable[[], Coroutine[Any, Any, None]], busy: Callable[[], bool]) -> None:
        if self.keeper is None or self.keeper.over:
            self.keeper = self.spawn(self._keep(run, busy))

    def wake(self) -> None:
        self.flags.add(KEEPER)

    async def pause(self, seconds: float) -> None:
        await _Event(self, KEEPER).wait(seconds)

    # -- what the world calls

    def ring(self, number: int) -> None:
        """Let an alarm ring."""
        self.alarms[number].over = True
        self.alarms[number].ring()

    async def _keep(self, run: Callable[[], Coroutine[Any, Any, None]], busy: Callable[[], bool]) -> None:
        while True:
            await run()
            if not busy():
                return


class _Event:
    home = "the only one"

    def __init__(self, port: ProcessPort, number: int) -> None:
        self._port = port
        self._number = number

    def set(self) -> None:
        self._port.flags.add(self._number)

    async def wait(self, seconds: float) -> bool:
        if self._number not in self._port.flags:
            await self._port.ask(Wait(min(seconds, FOREVER), self._number))
        was_set = self._number in self._port.flags
        self._port.flags.discard(self._number)
        return was_set


def later(now: int, seconds: float) -> int:
    """Return the first microsecond that is not before ``seconds`` after ``now``."""
    return now + max(math.ceil(round(seconds * 1_000_000, 3)), int(seconds > 0))


def due(ask: Ask, since: int) -> int | None:
    """Return when a sleeper wakes by itself."""
    return later(since, ask.seconds) if isinstance(ask, Sleep | Wait) else None
