"""One moment of an exploration: the table, the clients, what is under way, what may still go wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeVar

from tests.exploration.asks import Query
from tests.exploration.programs import Budget, Kind, Operation, Program
from tests.exploration.stage import Episode
from tests.exploration.table import Row

__all__ = ["Act", "Client", "Grip", "State", "microseconds", "next_operation", "replaced"]

T = TypeVar("T")


class Grip(NamedTuple):
    """What a client knows of a key: its owner token, and until when (local clock) it trusts its lease."""

    key: str
    owner: str
    token: int = 0
    until: int = 0


class Act(NamedTuple):
    """A call that goes on, with what was true at some moment of it."""

    episode: Episode
    over: bool = False
    """The call itself ended; a clean-up goes on behind."""
    busy: bool = False
    """Somebody else held the key."""
    pinned: bool = False
    """Somebody's open transaction stood in the way."""
    lapsed: bool = False
    """The owner token of the call did not hold the key."""
    haunted: bool = False
    """A claim of this waiter that it had given up was carried out after all."""
    freed: frozenset[int] = frozenset()
    """Tokens of this owner's grants that were released meanwhile."""


class Client(NamedTuple):
    """One process, or task, and where it is in its program."""

    name: str
    alive: bool = True
    position: int = 0
    grips: tuple[Grip, ...] = ()
    acts: tuple[Act, ...] = ()

    def grip(self, key: str) -> Grip | None:
        return next((grip for grip in self.grips if grip.key == key), None)

    def with_grip(self, grip: Grip) -> Client:
        others = (other for other in self.grips if other.key != grip.key)
        return self._replace(grips=tuple(sorted((*others, grip))))

    @property
    def calling(self) -> bool:
        return any(not act.over for act in self.acts)


class State(NamedTuple):
    """Everything that decides what can happen next, and whether it may."""

    clients: tuple[Client, ...]
    budget: Budget
    now: int = 0
    """Microseconds by the clients' clocks."""
    rows: tuple[Row, ...] = ()
    late: tuple[Query, ...] = ()
    """Given up by their clients, still to be carried out."""
    pins: tuple[tuple[str, str], ...] = ()
    tops: tuple[tuple[str, int], ...] = ()
    """The greatest token handed out so far, key by key."""
    credited: frozenset[int] = frozenset()
    """Tokens of grants whose release was confirmed."""

    def row(self, key: str) -> Row | None:
        return next((row for row in self.rows if row.key == key), None)

    def acts(self) -> Iterator[tuple[int, int, Act]]:
        """Return all calls, with the places of their client and of themselves."""
        for place, client in enumerate(self.clients):
            for number, act in enumerate(client.acts):
                yield place, number, act

    def with_client(self, place: int, client: Client) -> State:
        return self._replace(clients=replaced(self.clients, place, client))

    def with_act(self, place: int, number: int, act: Act) -> State:
        client = self.clients[place]
        return self.with_client(place, client._replace(acts=replaced(client.acts, number, act)))

    def spent(self, **costs: int) -> State:
        left = {name: getattr(self.budget, name) - cost for name, cost in costs.items()}
        return self._replace(budget=self.budget._replace(**left))


def replaced(items: tuple[T, ...], place: int, item: T) -> tuple[T, ...]:
    return (*items[:place], item, *items[place + 1 :])


def microseconds(seconds: float) -> int:
    return round(seconds * 1_000_000)


def next_operation(client: Client, program: Program) -> tuple[int, Operation] | None:
    """Return the client's next call; what needs an owner token is left out where there is none."""
    for number in range(client.position, len(program)):
        operation = program[number]
        needs_owner = operation.kind in (Kind.EXTEND, Kind.RELEASE)
        if not needs_owner or client.grip(operation.key) is not None:
            return number, operation
    return None
