"""Breaks things, one after another, as a seed says; what lasts is undone when its time is over."""

from __future__ import annotations

import heapq
import itertools
import random
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial

from sqllocks import LockError
from tests.chaos.crew import Member
from tests.chaos.history import Recorder, now
from tests.chaos.place import Place
from tests.chaos.plan import Plan
from tests.faults import Direction, Relay

FIRST = 0.5
"""Seconds before the first fault, so that everybody has begun."""
TRIES = 5
RESTART_EVERY = 15.0
LONGEST_SILENCE = 2.5


class Injector:
    """Chooses a fault and its victim again and again, in the thread that calls ``run``."""

    def __init__(self, plan: Plan, place: Place, crew: Sequence[Member], recorder: Recorder) -> None:
        self._plan = plan
        self._place = place
        self._crew = crew
        self._tell = recorder.tell
        self._recorder = recorder
        self._random = random.Random(plan.seed)
        self._undoings: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._restart_at = now() + RESTART_EVERY / 2
        faults = {"kill": (self._kill, 3), "stop": (self._stop, 4), "break": (self._break, 3)}
        faults["purge"] = (self._purge, 1)
        if plan.server == "sqlite":
            faults["lock the file"] = (self._lock_file, 3)
        else:
            faults |= self._network_faults()
        chosen = [fault for name, fault in faults.items() if not plan.faults or name in plan.faults]
        self._faults, self._weights = zip(*chosen, strict=True)

    def _network_faults(self) -> dict[str, tuple[Callable[[], bool], int]]:
        return {
            "drop a reply": (self._drop, 5),
            "delay": (self._delay, 3),
            "silence": (self._silence, 4),
            "refuse": (self._refuse, 2),
            "cut": (self._cut, 3),
            "terminate a session": (self._terminate, 4),
        }

    def run(self, until: float) -> None:
        """Inject faults until then, and undo them all."""
        following = now() + FIRST
        while now() < until:
            self._undo(now())
            if now() >= following:
                self._inject()
                following = now() + self._random.expovariate(1 / self._plan.pace)
            soonest = min(following, until, self._undoings[0][0] if self._undoings else until)
            time.sleep(max(soonest - now(), 0))
        self._undo(float("inf"))

    def _inject(self) -> None:
        if self._place.can_restart and now() >= self._restart_at:
            self._restart()
            return
        # one that finds no victim leaves its turn to another
        for fault in self._random.choices(self._faults, self._weights, k=TRIES):
            if fault():
                return

    def _undo(self, moment: float) -> None:
        while self._undoings and self._undoings[0][0] <= moment:
            heapq.heappop(self._undoings)[2]()

    def _later(self, seconds: float, undo: Callable[[], None]) -> None:
        heapq.heappush(self._undoings, (now() + seconds, next(self._numbers), undo))

    def _victim(self, fault: str, *, lasting: bool = False) -> Member | None:
        """Return somebody, or nobody where all have a lasting trouble already; and tell of the fault."""
        members = [member for member in self._crew if not (lasting and member.troubled)]
        if not members:
            return None
        member = self._random.choice(members)
        member.troubled = member.troubled or lasting
        self._tell("fault", worker=member.name, note=fault)
        return member

    # -- processes

    def _kill(self) -> bool:
        member = self._victim("kill")
        assert member is not None
        member.kill(self._recorder)
        return True

    def _stop(self) -> bool:
        member = self._victim("stop", lasting=True)
        if member is None:
            return False
        member.signal(signal.SIGSTOP)

        def go_on() -> None:
            member.signal(signal.SIGCONT)
            member.troubled = False

        self._later(self._plan.ttl[1] * self._random.uniform(0.5, 2), go_on)
        return True

    # -- networks

    def _relay(self, fault: str) -> tuple[Member, Relay] | None:
        member = self._victim(fault, lasting=True)
        if member is None:
            return None
        assert member.relay is not None
        return member, member.relay

    def _drop(self) -> bool:
        found = self._relay("drop a reply")
        if found is not None:
            found[1].lose_next_answer(then_refuse=self._random.random() < 0.3)
            self._later(self._random.uniform(0.2, 0.8), partial(self._pass_on, *found))
        return found is not None

    def _delay(self) -> bool:
        found = self._relay("delay")
        if found is not None:
            found[1].delay(self._random.uniform(0.05, 0.5), self._random.choice(list(Direction)))
            self._later(self._random.uniform(0.5, 2), partial(self._pass_on, *found))
        return found is not None

    def _silence(self) -> bool:
        found = self._relay("silence")
        if found is not None:
            found[1].fall_silent()
            self._later(self._random.uniform(0.3, LONGEST_SILENCE), partial(self._pass_on, *found, now()))
        return found is not None

    def _refuse(self) -> bool:
        found = self._relay("refuse")
        if found is not None:
            found[1].refuse()
            self._later(self._random.uniform(0.3, LONGEST_SILENCE), partial(self._pass_on, *found, now()))
        return found is not None

    def _cut(self) -> bool:
        found = self._relay("cut")
        if found is not None:
            found[1].cut()
            self._pass_on(*found)
        return found is not None

    def _pass_on(self, member: Member, relay: Relay, outage_since: float | None = None) -> None:
        if outage_since is not None:
            self._tell("outage", worker=member.name, since=outage_since)
        relay.pass_on()
        member.troubled = False

    # -- servers and operators

    def _terminate(self) -> bool:
        done = self._place.terminate_one(self._random)
        if done:
            self._tell("fault", note="terminate a session")
        return done

    def _restart(self) -> None:
        orderly = self._random.random() < 0.5
        self._tell("fault", note="restart the server" if orderly else "crash the server")
        self._place.restart(orderly=orderly)
        self._restart_at = now() + RESTART_EVERY * self._random.uniform(0.7, 1.3)

    def _lock_file(self) -> bool:
        self._tell("fault", note="lock the file")
        self._place.lock_file(self._random.uniform(0.1, 0.8))
        return True

    def _break(self) -> bool:
        key, since = self._random.choice(self._plan.keys), now()
        self._tell("fault", key=key, note="break")
        try:
            broken = self._place.operator.break_lock(key)
        except LockError:
            broken = True  # perhaps
        if broken:
            self._tell("broken", key=key, since=since)
        return True

    def _purge(self) -> bool:
        self._tell("fault", note="purge")
        try:
            self._place.operator.purge(idle=60)
        except LockError as error:
            self._tell("fault", note=f"purge failed: {type(error).__name__}")
        return True
