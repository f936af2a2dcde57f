"""What may happen next to processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

from sqllocks.dialects.base import FaultKind
from tests.exploration.asks import (
    Answered,
    Done,
    Failed,
    Guard,
    Interrupted,
    Leave,
    Open,
    Query,
    Ready,
    Reply,
    Sleep,
    Wait,
    Woken,
)
from tests.exploration.moves import Move
from tests.exploration.processes.effects import Effects
from tests.exploration.processes.lives import Life, Lives, Pending
from tests.exploration.processes.port import FOREVER, KEEPER
from tests.exploration.processes.programs import Scenario
from tests.exploration.processes.properties import check_end, check_told, sleeps
from tests.exploration.processes.world import NOBODY, Pin, State
from tests.exploration.table import Row
from tests.exploration.world import microseconds

__all__ = ["Choice", "Moves"]

Choice: TypeAlias = tuple[Move, Callable[[], State]]
STALL = 0.5


class Moves:
    """The choices in each state of one scenario."""

    def __init__(self, scenario: Scenario, lives: Lives) -> None:
        self._scenario = scenario
        self._lives = lives
        self._effects = Effects(scenario, lives)

    def first(self) -> State:
        """Return the state in which nothing has happened."""
        scenario = self._scenario
        rows = tuple(Row(key, "former", "", "former", 1, 0, 0) for key in sorted(scenario.keys))
        lives = tuple(self._lives.born(place) for place in range(len(scenario.programs)))
        return State(lives, scenario.budget, rows=rows)

    def choices(self, state: State) -> Iterator[Choice]:
        """Return all moves; those in which nothing goes wrong come first."""
        alive = [(place, life) for place, life in enumerate(state.lives) if life is not None]
        runs = [
            (place, life, pending)
            for place, life in alive
            for pending in life.pending
            if self._runs(state, pending)
        ]
        for place, life, pending in runs:
            yield from self._of_strand(state, place, life, pending)
        yield from self._of_world(state)
        calm = not any(_moves(pending) or self._due(state, pending) for _, _, pending in runs)
        for _, life in alive:
            if not any(self._due(state, pending) for pending in life.pending):
                check_told(state, life)
        if calm:
            yield from self._of_time(state, runs)
        if any(not isinstance(pending.ask, Ready) for _, life in alive for pending in life.pending):
            yield from self._of_faults(state, alive)

    def _runs(self, state: State, pending: Pending) -> bool:
        match pending.ask:
            case Guard():
                return not self._effects.blocked_guard(state, pending.ask)
            case Sleep() | Wait() | None:
                return self._due(state, pending)
        return True

    def _due(self, state: State, pending: Pending) -> bool:
        due = self._wakes(pending)
        return pending.woken or (due is not None and due <= state.now)

    def _wakes(self, pending: Pending) -> int | None:
        """Return when a sleeper wakes by itself; pauses of a waiter are stretched, so that they are few."""
        due, ask = pending.due, pending.ask
        if isinstance(ask, Sleep) or (isinstance(ask, Wait) and ask.event != KEEPER):
            stretch = max(self._scenario.nap - ask.seconds, 0.0)
            return None if due is None else due + microseconds(stretch)
        return due

    # -- processes

    def _of_strand(self, state: State, place: int, life: Life, pending: Pending) -> Iterator[Choice]:
        name, strand, ask = life.name, pending.strand, pending.ask
        reply = partial(self._effects.replied, state, place, strand)
        match ask:
            case Query():
                yield from self._of_query(state, place, life, strand, ask)
                return
            case Guard():
                yield Move(name, ask), partial(self._effects.guarded, state, place, strand, ask)
            case Leave():
                ended = self._effects.unpinned(state, place, ask.key)
                yield Move(name, ask), partial(self._effects.replied, ended, place, strand, Done())
                return  # a commit that is interrupted is another's worry
            case None:
                yield Move(name, "alarm", "rings"), partial(reply, None)
                return
            case _:
                how = "woken" if pending.woken else ""
                yield Move(name, ask, how), partial(reply, Woken() if pending.woken else Done())
        if isinstance(ask, Open) and state.budget.faults:
            poorer = state.spent(faults=1)
            refused = Failed(FaultKind.GONE, sent=False)
            yield Move(name, ask, "refused"), partial(self._effects.replied, poorer, place, strand, refused)

    def _of_query(self, state: State, place: int, life: Life, strand: int, query: Query) -> Iterator[Choice]:
        name, reply, carry_out = life.name, self._effects.replied, self._effects.carried_out
        done = self._effects.executed(state, query)
        if done is None:
            refused = Failed(FaultKind.LOCKED)
            move = Move(name, query, "refused, a transaction is open")
            yield move, partial(reply, state, place, strand, refused)
        else:
            answered = Answered(done[1])
            move = Move(name, query, "answered")
            yield move, lambda: reply(carry_out(state, query), place, strand, answered)
        for poorer, what, stop in self._troubles(state, life, strand):
            yield Move(name, query, f"not carried out, {what}"), partial(reply, poorer, place, strand, stop)
            if query.writes and done is not None:
                move = Move(name, query, f"carried out, {what}")
                yield move, partial(self._done_but, poorer, place, strand, query, stop)
            if query.writes and self._scenario.late:
                later = poorer._replace(late=(*poorer.late, query))
                yield Move(name, query, f"on its way, {what}"), partial(reply, later, place, strand, stop)

    def _done_but(self, state: State, place: int, strand: int, query: Query, stop: Reply) -> State:
        return self._effects.replied(self._effects.carried_out(state, query), place, strand, stop)

    def _troubles(
        self, state: State, life: Life, strand: int
    ) -> Iterator[tuple[State, str, Failed | Interrupted]]:
        if state.budget.faults:
            for kind in self._scenario.kinds:
                yield state.spent(faults=1), kind.value, Failed(kind)
        if state.budget.interrupts and strand < life.tasks:
            yield state.spent(interrupts=1), "interrupted", Interrupted()

    # -- the world

    def _of_world(self, state: State) -> Iterator[Choice]:
        for number, query in enumerate(state.late):
            if query not in state.late[:number] and self._effects.executed(state, query) is not None:
                yield Move("late", query, "carried out"), partial(self._effects.landed, state, number)
        for pin in state.pins:
            if pin.place == NOBODY:
                after = self._effects.unpinned(state, NOBODY, pin.key)
                move = Move("transaction", f"ends its {pin.kind} of {pin.key}")
                yield move, partial(self._effects.settled, after)

    def _of_time(self, state: State, runs: list[tuple[int, Life, Pending]]) -> Iterator[Choice]:
        """Time goes on to the next timer when nobody has anything to do before it."""
        wakes = [
            due
            for life in state.lives
            for pending in (life.pending if life else ())
            if (due := self._wakes(pending)) is not None
        ]
        soon = [due for due in wakes if due < state.now + microseconds(FOREVER / 4)]
        if soon:
            later = state._replace(now=min(soon))
            yield Move("time", f"{min(soon) / 1e6:g} s"), partial(self._effects.settled, later)
        elif not runs and not state.late and not state.pins:
            check_end(state, {place: sleeps(life) for place, life in enumerate(state.lives) if life})

    def _of_faults(self, state: State, alive: list[tuple[int, Life]]) -> Iterator[Choice]:
        settled = self._effects.settled
        if state.budget.stalls:
            spans = {state.now + microseconds(STALL), *self._effects.ends(state)}
            for moment in sorted(spans):
                later = state.spent(stalls=1)._replace(now=moment)
                yield Move("time", f"stands still until {moment / 1e6:g} s"), partial(settled, later)
        if state.budget.deaths:
            for place, life in alive:
                dead = state.spent(deaths=1)
                yield Move(life.name, "dies"), partial(self._effects.died, dead, place)
        if state.budget.interrupts:
            for place, life in alive:
                for pending in life.pending:
                    if pending.strand < life.tasks and isinstance(pending.ask, Sleep | Wait):
                        poorer = state.spent(interrupts=1)
                        yield (
                            Move(life.name, pending.ask, "interrupted"),
                            partial(self._effects.replied, poorer, place, pending.strand, Interrupted()),
                        )
        if state.budget.pins and not state.pins:
            for key in self._scenario.keys:
                pinned = state.spent(pins=1)._replace(pins=(Pin(key, self._scenario.family.pins[0]),))
                yield Move("transaction", f"locks the row of {key}"), partial(settled, pinned)


def _moves(pending: Pending) -> bool:
    """Tell whether somebody has something to do at once, so that time does not pass first."""
    return isinstance(pending.ask, Query | Open | Leave | Guard)
