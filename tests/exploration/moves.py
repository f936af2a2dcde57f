"""What may happen next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, TypeAlias

from sqllocks.dialects.base import FaultKind
from tests.exploration.asks import Answered, Done, Failed, Interrupted, Join, Open, Query, Sleep, TimedOut
from tests.exploration.effects import Effects, Spot
from tests.exploration.programs import Scenario
from tests.exploration.stage import Pending, Stage
from tests.exploration.table import Row
from tests.exploration.world import Client, State, microseconds, next_operation

__all__ = ["Choice", "Move", "Moves"]

STALLS = (0.5, 2.5)
"""Longer than a claim is asked again, and longer than a release is; both shorter than a ttl."""


class Move(NamedTuple):
    """A line of a trace: who (a client, or the world), what, and how it went."""

    who: str
    what: object
    how: str = ""

    def __str__(self) -> str:
        return f"{self.who}: {self.what}{': ' if self.how else ''}{self.how}"


Choice: TypeAlias = tuple[Move, Callable[[], State]]
"""A move, and the state that it leads to."""


class Moves:
    """The choices in each state of one scenario."""

    def __init__(self, scenario: Scenario, stage: Stage) -> None:
        self._scenario = scenario
        self._effects = Effects(scenario, stage)

    def first(self) -> State:
        """Return the state in which nothing has happened."""
        scenario = self._scenario
        names = "ABCDEFGH"[: len(scenario.programs)]
        rows = tuple(Row(key, "former", "", "former", 1, 0, 0) for key in scenario.keys if scenario.used)
        return State(tuple(Client(name) for name in names), scenario.budget, rows=rows)

    def choices(self, state: State) -> Iterator[Choice]:
        """Return all moves; those in which nothing goes wrong come first."""
        for place, client in enumerate(state.clients):
            if client.alive:
                yield from self._of_client(state, place, client)
        yield from self._of_statements(state)
        if any(client.acts or self._goes_on(place, client) for place, client in enumerate(state.clients)):
            yield from self._of_time(state)
            yield from self._of_pins(state)

    def _goes_on(self, place: int, client: Client) -> bool:
        return client.alive and next_operation(client, self._scenario.programs[place]) is not None

    # -- clients

    def _of_client(self, state: State, place: int, client: Client) -> Iterator[Choice]:
        if not client.calling and self._goes_on(place, client):
            found = next_operation(client, self._scenario.programs[place])
            assert found is not None
            yield Move(client.name, found[1], "begins"), partial(self._effects.begun, state, place)
        for number, act in enumerate(client.acts):
            for pending in act.episode.asks:
                yield from self._of_strand(state, Spot(place, number, pending.strand), client.name, pending)
        if state.budget.deaths and (client.calling or self._goes_on(place, client)):
            poorer = state.spent(deaths=1)
            yield Move(client.name, "dies"), partial(self._effects.died, poorer, place)
            for act in client.acts:
                for pending in act.episode.asks:
                    if isinstance(pending.ask, Query) and pending.ask.writes and self._scenario.late:
                        after = poorer._replace(late=(*state.late, pending.ask))
                        move = Move(client.name, "dies", f"{pending.ask} is on its way")
                        yield move, partial(self._effects.died, after, place)

    def _of_strand(self, state: State, spot: Spot, name: str, pending: Pending) -> Iterator[Choice]:
        ask = pending.ask
        # a clean-up is a task of its own, which nothing interrupts
        interruptible = bool(state.budget.interrupts) and spot.strand == 0
        reply = self._effects.replied
        match ask:
            case Query():
                yield from self._of_query(state, spot, name, ask)
            case Open():
                yield Move(name, ask), partial(reply, state, spot, Done())
                if state.budget.faults:
                    refused = Failed(FaultKind.GONE, sent=False)
                    yield Move(name, ask, "refused"), partial(reply, state.spent(faults=1), spot, refused)
            case Sleep():
                due = pending.since + microseconds(max(ask.seconds, self._scenario.nap))
                later = state._replace(now=max(state.now, due))
                yield Move(name, ask), lambda: reply(self._effects.settled(later), spot, Done())
            case Join() if state.budget.stalls:
                later = state.spent(stalls=1)._replace(now=state.now + microseconds(STALLS[-1]))
                move = Move(name, ask, "not in time, it goes on behind")
                yield move, lambda: reply(self._effects.settled(later), spot, TimedOut())
        if interruptible and not isinstance(ask, Query):
            poorer = state.spent(interrupts=1)
            yield Move(name, ask, "interrupted"), partial(reply, poorer, spot, Interrupted())

    def _of_query(self, state: State, spot: Spot, name: str, query: Query) -> Iterator[Choice]:
        reply, carry_out = self._effects.replied, self._effects.carried_out
        done = self._effects.executed(state, query)
        if done is None:
            refused = Failed(FaultKind.CONFLICT)
            yield Move(name, query, "refused, a transaction is open"), partial(reply, state, spot, refused)
        else:
            answered = Answered(done[1])
            yield Move(name, query, "answered"), lambda: reply(carry_out(state, query), spot, answered)
        writes = query.writes and done is not None
        if state.budget.faults:
            yield from self._faults(state.spent(faults=1), spot, name, query, writes=writes)
        if state.budget.interrupts and spot.strand == 0:
            yield from self._interrupts(state.spent(interrupts=1), spot, name, query, writes=writes)

    def _faults(self, state: State, spot: Spot, name: str, query: Query, *, writes: bool) -> Iterator[Choice]:
        reply, carry_out = self._effects.replied, self._effects.carried_out
        for kind in self._scenario.kinds:
            failed = Failed(kind)
            yield Move(name, query, f"not carried out, {kind.value}"), partial(reply, state, spot, failed)
            if kind is FaultKind.CONFLICT:
                continue
            if writes:
                move = Move(name, query, f"carried out, {kind.value}")
                yield move, partial(lambda failed: reply(carry_out(state, query), spot, failed), failed)
            if query.writes and self._scenario.late:
                later = state._replace(late=(*state.late, query))
                yield Move(name, query, f"on its way, {kind.value}"), partial(reply, later, spot, failed)

    def _interrupts(
        self, state: State, spot: Spot, name: str, query: Query, *, writes: bool
    ) -> Iterator[Choice]:
        reply, carry_out = self._effects.replied, self._effects.carried_out
        stop = Interrupted()
        yield Move(name, query, "interrupted before"), partial(reply, state, spot, stop)
        if writes:
            move = Move(name, query, "carried out, then interrupted")
            yield move, lambda: reply(carry_out(state, query), spot, stop)
        if query.writes and self._scenario.late:
            later = state._replace(late=(*state.late, query))
            yield Move(name, query, "interrupted while on its way"), partial(reply, later, spot, stop)

    # -- the world

    def _of_statements(self, state: State) -> Iterator[Choice]:
        for number, query in enumerate(state.late):
            if query not in state.late[:number] and self._effects.executed(state, query) is not None:
                yield Move("late", query, "carried out"), partial(self._effects.landed, state, number)

    def _of_time(self, state: State) -> Iterator[Choice]:
        settled = self._effects.settled
        ends = [self._effects.local(row.expires) for row in state.rows if row.attempt]
        ends = [end for end in ends if end > state.now]
        if state.budget.expiries and ends:
            expired = state.spent(expiries=1)._replace(now=min(ends))
            yield Move("time", "a lease ends"), partial(settled, expired)
        if state.budget.stalls:
            for seconds in STALLS:
                later = state.spent(stalls=1)._replace(now=state.now + microseconds(seconds))
                yield Move("time", f"{seconds:g} s go by"), partial(settled, later)

    def _of_pins(self, state: State) -> Iterator[Choice]:
        settled = self._effects.settled
        for key, pin in state.pins:
            rest = tuple(other for other in state.pins if other != (key, pin))
            yield Move("transaction", f"ends its {pin} of {key}"), partial(settled, state._replace(pins=rest))
        if not state.budget.pins or state.pins:
            return
        for key in self._scenario.keys:
            for pin in self._scenario.family.pins:
                pinned = state.spent(pins=1)._replace(pins=((key, pin),))
                yield Move("transaction", f"begins its {pin} of {key}"), partial(settled, pinned)
