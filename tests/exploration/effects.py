"""What comes of a move: the next state, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqllocks.dialects.base import Result
from sqllocks.model import LockHandle
from tests.exploration.asks import Query, Reply
from tests.exploration.programs import Kind, Scenario
from tests.exploration.properties import check_change, check_left_behind, check_outcome, check_trust
from tests.exploration.stage import Cue, Script, Stage
from tests.exploration.table import Blocked, Row, held
from tests.exploration.violation import Violation
from tests.exploration.world import Act, Client, Grip, State, microseconds, next_operation

__all__ = ["Effects", "Spot"]

DATABASE_START = 1_000_000_000
"""The database's clock when the clients' says 0, in microseconds."""


@dataclass(frozen=True, slots=True)
class Spot:
    """One strand of one call of one client."""

    client: int
    act: int
    strand: int


class Effects:
    """The steps of one scenario."""

    def __init__(self, scenario: Scenario, stage: Stage) -> None:
        self._scenario = scenario
        self._stage = stage
        self._executed: dict[object, tuple[tuple[Row, ...], Result] | None] = {}

    def database(self, now: int) -> int:
        """Return the database's clock for the clients' clock."""
        return DATABASE_START + now * (1000 + self._scenario.drift) // 1000

    def local(self, instant: int) -> int:
        """Return the first moment by the clients' clock at which the database's has come to ``instant``."""
        return -(-(instant - DATABASE_START) * 1000 // (1000 + self._scenario.drift))

    # -- the database

    def executed(self, state: State, query: Query) -> tuple[tuple[Row, ...], Result] | None:
        """Return the rows after a statement and its answer, or ``None`` where it is blocked."""
        now = self.database(state.now)
        case = (query, state.rows, state.pins, now)
        if case not in self._executed:
            rows = {row.key: row for row in state.rows}
            try:
                after, result = self._scenario.family.execute(query, rows, dict(state.pins), now)
            except Blocked:
                self._executed[case] = None
            else:
                self._executed[case] = (tuple(after[key] for key in sorted(after)), result)
        return self._executed[case]

    def carried_out(self, state: State, query: Query) -> State:
        """Return what is after a statement that is not blocked."""
        done = self.executed(state, query)
        assert done is not None
        rows = done[0]
        if rows == state.rows:
            return state
        check_change(state, {row.key: row for row in rows}, self.database(state.now))
        gone = {row.key: row for row in state.rows if row not in rows}
        if query.kind == "release":
            state = _with_freed(state, gone)
        if query.statement == "break":
            state = _without_trust(state, gone)
        return state._replace(rows=rows)

    def landed(self, state: State, number: int) -> State:
        """Carry out a statement that its client has given up."""
        query = state.late[number]
        rest = (*state.late[:number], *state.late[number + 1 :])
        after = self.carried_out(state._replace(late=rest), query)
        if query.kind in ("claim", "insert") and after.rows != state.rows:
            after = _with_haunted(after, {want.attempt for want in query.wants})
        return self.settled(after)

    # -- the clients

    def begun(self, state: State, place: int) -> State:
        """Let a client start its next call."""
        client = state.clients[place]
        found = next_operation(client, self._scenario.programs[place])
        assert found is not None
        number, operation = found
        grip = client.grip(operation.key)
        if grip is not None and operation.kind is Kind.RELEASE:
            client = client.with_grip(grip._replace(until=0))
        elif grip is not None and operation.kind is Kind.EXTEND:
            # a shorter ttl may be in force as soon as it is on its way
            until = min(grip.until, self._until(state.now, operation.ttl))
            client = client.with_grip(grip._replace(until=until))
        owner = grip.owner if grip else None
        episode = self._stage.begin(Script(client.name, number, operation, owner, state.now))
        if not episode.asks:
            raise Violation(f"{operation} ends before it asks anything: {episode.outcome}")
        client = client._replace(position=number + 1, acts=(*client.acts, Act(episode)))
        return self.settled(state.with_client(place, client))

    def replied(self, state: State, spot: Spot, reply: Reply) -> State:
        """Let a strand go on with a reply."""
        act = state.clients[spot.client].acts[spot.act]
        episode = self._stage.after(act.episode, Cue(spot.strand, state.now, reply))
        act = act._replace(episode=episode)
        if episode.outcome is not None and not act.over:
            calm = state.budget == self._scenario.budget
            check_outcome(state, act, self.database(state.now), calm=calm)
            state = self._concluded(state, spot.client, act)
            act = act._replace(over=True)
        if episode.asks:
            return self.settled(state.with_act(spot.client, spot.act, act))
        check_left_behind(state, act, self.database(state.now))
        client = state.clients[spot.client]
        acts = (*client.acts[: spot.act], *client.acts[spot.act + 1 :])
        return self.settled(state.with_client(spot.client, client._replace(acts=acts)))

    def died(self, state: State, place: int) -> State:
        """End a client where it is."""
        return state.with_client(place, Client(state.clients[place].name, alive=False))

    def settled(self, state: State) -> State:
        """Note what calls under way could see, and check what must hold in every state."""
        check_trust(state)
        now = self.database(state.now)
        for place, number, act in state.acts():
            script = act.episode.script
            row = state.row(script.operation.key)
            holder = row if held(row, now) else None
            busy = holder is not None and holder.attempt not in act.episode.attempts
            lapsed = holder is None or holder.owner != script.owner
            seen = (act.busy or busy, act.pinned or bool(state.pins), act.lapsed or lapsed)
            if seen != (act.busy, act.pinned, act.lapsed):
                noted = act._replace(busy=seen[0], pinned=seen[1], lapsed=seen[2])
                state = state.with_act(place, number, noted)
        return state

    def _concluded(self, state: State, place: int, act: Act) -> State:
        """Let a client learn how its call ended."""
        script, outcome = act.episode.script, act.episode.outcome
        assert outcome is not None
        client, operation, value = state.clients[place], script.operation, outcome.value
        grip = client.grip(operation.key)
        until = self._until(act.episode.tried, operation.ttl)
        if isinstance(value, LockHandle) and value.acquired:
            grip = Grip(operation.key, value.owner_token, value.fencing_token, until)
            tops = {**dict(state.tops), operation.key: value.fencing_token}
            state = state._replace(tops=tuple(sorted(tops.items())))
        elif isinstance(value, LockHandle) and grip is None:
            grip = Grip(operation.key, value.owner_token)
        elif operation.kind is Kind.EXTEND and outcome.error is None and grip is not None:
            grip = grip._replace(until=0)
        elif operation.kind is Kind.RELEASE and value is True:
            state = state._replace(credited=state.credited | {min(act.freed - state.credited)})
        return state.with_client(place, client.with_grip(grip) if grip else client)

    def _until(self, started: int, ttl: float) -> int:
        return started + microseconds(self._scenario.trusted(ttl))


def _with_freed(state: State, gone: Mapping[str, Row]) -> State:
    """Note for each release under way that a grant of its owner was freed."""
    for place, number, act in state.acts():
        script = act.episode.script
        row = gone.get(script.operation.key)
        if script.operation.kind is Kind.RELEASE and row is not None and row.owner == script.owner:
            state = state.with_act(place, number, act._replace(freed=act.freed | {row.token}))
    return state


def _with_haunted(state: State, attempts: set[str]) -> State:
    """Note for waiters that their own claim stands in their way, or will be left behind."""
    for place, number, act in state.acts():
        if act.episode.script.operation.kind is Kind.WAIT and act.episode.attempts & attempts:
            state = state.with_act(place, number, act._replace(haunted=True))
    return state


def _without_trust(state: State, gone: Mapping[str, Row]) -> State:
    """An operator who breaks a lock answers for it: its holder's trust counts no more."""
    for place, client in enumerate(state.clients):
        broken = {key for key, row in gone.items() if row.token in {grip.token for grip in client.grips}}
        grips = (grip._replace(until=0) if grip.key in broken else grip for grip in client.grips)
        state = state.with_client(place, client._replace(grips=tuple(grips)))
    for place, number, act in state.acts():
        # whose grant is broken before it is told may be told that the key is busy
        if any(row.attempt in act.episode.attempts for row in gone.values()):
            state = state.with_act(place, number, act._replace(busy=True))
    return state
