"""Go to every state that a scenario can reach, once."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tests.exploration.moves import Move, Moves
from tests.exploration.programs import Scenario
from tests.exploration.stage import Stage
from tests.exploration.violation import Violation

__all__ = ["Counterexample", "Counts", "World", "explore", "search"]

S = TypeVar("S", bound=Hashable)


class World(Protocol[S]):
    """What can be searched."""

    def first(self) -> S: ...

    def choices(self, state: S) -> Iterable[tuple[Move, Callable[[], S]]]: ...


@dataclass(frozen=True, slots=True)
class Counts:
    """How far an exploration went."""

    schedules: int
    """Different ways from the first state to an end; each is covered, however many share their states."""
    states: int
    moves: int
    cut: int = 0
    """States at which the bound on the length of a schedule ended the search."""

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.schedules + other.schedules,
            self.states + other.states,
            self.moves + other.moves,
            self.cut + other.cut,
        )

    def __str__(self) -> str:
        cut = f", {self.cut} cut off" if self.cut else ""
        return f"{self.schedules:,} schedules in {self.states:,} states and {self.moves:,} moves{cut}"


class Counterexample(AssertionError):
    """A violation, with the moves that lead to it."""

    def __init__(self, violation: Violation, trace: tuple[Move, ...]) -> None:
        self.violation = str(violation)
        self.trace = trace
        lines = (f"{number:3} {move}" for number, move in enumerate(trace, start=1))
        super().__init__("\n".join((self.violation, *lines)))


def explore(scenario: Scenario, *, longest: int = 80) -> Counts:
    """Go everywhere within the scenario's budget; raises the shortest ``Counterexample`` there is."""
    stage = Stage(scenario)
    moves = Moves(scenario, stage)
    with stage.ready():
        return search(moves, longest)


def search(world: World[S], longest: int) -> Counts:
    """Go to every state of a world; raises the shortest ``Counterexample`` there is."""
    with _deep(20 * longest):
        going = _Search(world, longest)
        try:
            schedules = going.below(world.first(), 0)
        except Violation as violation:
            raise _shortest(world) from violation
        return Counts(schedules, len(going.known), going.made, going.cut)


def _shortest(moves: World[S]) -> Counterexample:
    """Search again, breadth first: people read what this returns."""
    came: dict[S, tuple[S, Move] | None] = {moves.first(): None}
    queue = deque(came)
    while queue:
        state = queue.popleft()
        try:
            choices = list(moves.choices(state))
        except Violation as violation:
            return Counterexample(violation, _trace(came, state))
        for move, leads in choices:
            try:
                after = leads()
            except Violation as violation:
                return Counterexample(violation, (*_trace(came, state), move))
            if after not in came:
                came[after] = (state, move)
                queue.append(after)
    raise RuntimeError("the violation is not found again: the core is not deterministic")


def _trace(came: Mapping[S, tuple[S, Move] | None], state: S) -> tuple[Move, ...]:
    trace: list[Move] = []
    while (step := came[state]) is not None:
        state = step[0]
        trace.append(step[1])
    return tuple(reversed(trace))


class _Search(Generic[S]):
    """Depth first; a state that is known is not entered again, only its schedules are counted."""

    def __init__(self, moves: World[S], longest: int) -> None:
        self.known: dict[S, int] = {}
        self.made = 0
        self.cut = 0
        self._moves = moves
        self._longest = longest

    def below(self, state: S, depth: int) -> int:
        """Return the number of schedules that go on from a state; raises ``Violation``."""
        if state in self.known:
            return self.known[state]
        if depth == self._longest:
            self.cut += 1
            return 1
        schedules = 0
        for _, leads in self._moves.choices(state):
            self.made += 1
            schedules += self.below(leads(), depth + 1)
        self.known[state] = max(schedules, 1)
        return self.known[state]


@contextmanager
def _deep(limit: int) -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, limit))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
