"""What comes of a move: the next state, checked."""

from __future__ import annotations

from sqllocks.dialects.base import Result
from sqllocks.dialects.guards import GuardedRow, View
from tests.exploration.asks import Guard, Query, Reply, Viewed
from tests.exploration.processes.lives import Cue, Life, Lives
from tests.exploration.processes.programs import Scenario
from tests.exploration.processes.properties import check_beliefs, check_change, check_fact
from tests.exploration.processes.world import Pin, State
from tests.exploration.table import Blocked, Row, held

__all__ = ["Effects"]


class Effects:
    """The steps of one scenario."""

    def __init__(self, scenario: Scenario, lives: Lives) -> None:
        self._scenario = scenario
        self._lives = lives
        self._executed: dict[object, tuple[tuple[Row, ...], Result] | None] = {}

    # -- the database

    def executed(self, state: State, query: Query) -> tuple[tuple[Row, ...], Result] | None:
        """Return the rows after a statement and its answer, or ``None`` where it is blocked."""
        case = (query, state.rows, state.pins, state.now)
        if case not in self._executed:
            rows = {row.key: row for row in state.rows}
            pins = {pin.key: pin.kind for pin in state.pins}
            try:
                after, result = self._scenario.family.execute(query, rows, pins, state.database)
            except Blocked:
                self._executed[case] = None
            else:
                self._executed[case] = (tuple(after[key] for key in sorted(after)), result)
        return self._executed[case]

    def carried_out(self, state: State, query: Query) -> State:
        """Return what is after a statement that is not blocked."""
        done = self.executed(state, query)
        assert done is not None
        rows = {row.key: row for row in done[0]}
        if done[0] == state.rows:
            return state
        check_change(state, rows, query)
        if query.kind == "release":
            freed = {(row.key, row.token) for row in state.rows if rows.get(row.key) not in (None, row)}
            state = state._replace(freed=state.freed | freed)
        tops = {**dict(state.tops), **{row.key: row.token for row in done[0]}}
        return state._replace(rows=done[0], tops=tuple(sorted(tops.items())))

    def landed(self, state: State, number: int) -> State:
        """Carry out a statement that its process has given up."""
        query = state.late[number]
        after = self.carried_out(state._replace(late=_without(state.late, number)), query)
        if query.kind in ("claim", "insert") and after.rows != state.rows:
            after = after._replace(haunted=after.haunted | {want.attempt for want in query.wants})
        return self.settled(after)

    # -- transactions of the application

    def blocked_guard(self, state: State, guard: Guard) -> bool:
        """Tell whether a guard waits for another transaction."""
        kind = self._scenario.family.guards
        return any(kind != "guard" or pin.kind != "guard" for pin in self._in_the_way(state, guard))

    def _in_the_way(self, state: State, guard: Guard) -> list[Pin]:
        whole_file = self._scenario.family.capabilities.single_writer
        return [pin for pin in state.pins if whole_file or pin.key == guard.key]

    def guarded(self, state: State, place: int, strand: int, guard: Guard) -> State:
        """Lock the row and show it."""
        row, now = state.row(guard.key), state.database
        seen = row and GuardedRow(row.owner, row.attempt, row.token, row.expires > now, row.token)
        pin = Pin(guard.key, self._scenario.family.guards, place)
        state = state._replace(pins=tuple(sorted((*state.pins, pin))))
        return self.replied(state, place, strand, Viewed(View(seen or None)))

    def unpinned(self, state: State, place: int, key: str) -> State:
        """End a transaction on the server."""
        number = next(n for n, pin in enumerate(state.pins) if (pin.key, pin.place) == (key, place))
        return state._replace(pins=_without(state.pins, number))

    # -- the processes

    def replied(self, state: State, place: int, strand: int, reply: Reply | None) -> State:
        """Let a strand go on with a reply, or an alarm ring."""
        before = state.lives[place]
        assert before is not None
        life = self._lives.after(place, before, Cue(strand, state.now, reply))
        state = state.with_life(place, life)
        self._check_facts(state, place, before, life)
        return self.settled(state)

    def _check_facts(self, state: State, place: int, before: Life, life: Life) -> None:
        for fact in life.facts[len(before.facts) :]:
            check_fact(state, place, life, fact)

    def died(self, state: State, place: int) -> State:
        """End a process where it is, and its transactions."""
        pins = tuple(pin for pin in state.pins if pin.place != place)
        return state.with_life(place, None)._replace(pins=pins)

    def settled(self, state: State) -> State:
        """Check what must hold in every state."""
        check_beliefs(state)
        return state

    def ends(self, state: State) -> list[int]:
        """Return by the processes' clocks when leases end that are held now."""
        now = state.database
        return sorted({row.expires - now + state.now for row in state.rows if held(row, now)})


def _without(items: tuple, number: int) -> tuple:  # type: ignore[type-arg]
    return (*items[:number], *items[number + 1 :])
