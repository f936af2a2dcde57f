"""What must never happen."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import combinations

from sqllocks.errors import BackendUnavailable, LockNotAcquired
from sqllocks.model import LockHandle
from sqllocks.schema import to_microseconds
from tests.exploration.families import LOCKED, WRITER
from tests.exploration.programs import Kind
from tests.exploration.stage import Outcome
from tests.exploration.table import RELEASED, Row, held
from tests.exploration.violation import Violation
from tests.exploration.world import Act, State

__all__ = ["check_change", "check_left_behind", "check_outcome", "check_trust"]


def check_trust(state: State) -> None:
    """At no moment do two clients trust a lease of the same key."""
    trusting = [
        (client.name, grip)
        for client in state.clients
        for grip in client.grips
        if client.alive and grip.until > state.now
    ]
    for (one, grip), (other, another) in combinations(trusting, 2):
        if grip.key == another.key:
            _fail(f"{one} and {other} both trust a lease of {grip.key!r} at {state.now / 1e6:g} s")


def check_change(before: State, after: Mapping[str, Row], now: int) -> None:
    """Rows change as locks do: a grant needs a free row, everything else a held one."""
    pins = dict(before.pins)
    for key, row in after.items():
        old = before.row(key)
        if old == row:
            continue
        if old is None or old.token != row.token or row.attempt not in (old.attempt, "", RELEASED):
            _need(not held(old, now), f"a lease of {key!r} was taken over before it ended")
            _need(old is None or row.token > old.token, f"the token of {key!r} did not rise")
            _need(key not in pins, f"{key!r} was granted although a transaction pins its row")
        else:
            _need(held(old, now), f"{key!r} was changed although its lease was over")
            _need(pins.get(key) not in (LOCKED, WRITER), f"the locked row of {key!r} was changed")


def check_outcome(state: State, act: Act, now: int, *, calm: bool) -> None:
    """What a call tells its caller is true; ``calm`` says that nothing went wrong in the whole schedule."""
    episode, outcome = act.episode, act.episode.outcome
    assert outcome is not None
    if outcome.error is not None:
        _check_error(act, outcome, outcome.error, calm=calm)
        return
    row = state.row(episode.script.operation.key)
    match episode.script.operation.kind:
        case Kind.ACQUIRE | Kind.WAIT:
            _check_handle(state, act, outcome.value, row, now)
        case Kind.EXTEND:
            _check_extended(act, outcome.value, row, now)
        case Kind.RELEASE:
            _check_released(state, act, outcome.value, row)


def check_left_behind(state: State, act: Act, now: int) -> None:
    """A call that is over, with its clean-up, left no lease that nobody knows of.

    What the core said it could not undo, and what was interrupted while it was undone, ends by its ttl.
    """
    episode, row = act.episode, state.row(act.episode.script.operation.key)
    outcome = episode.outcome
    assert outcome is not None
    if row is None or not held(row, now) or episode.complained or episode.cut_short or act.haunted:
        return
    if episode.script.operation.takes and not _is_grant(outcome.value):
        _need(row.attempt not in episode.attempts, "an acquire that did not succeed left its lease behind")
    if episode.script.operation.kind is Kind.RELEASE and outcome.interrupted:
        _need(row.owner != episode.script.owner, "an interrupted release left the lease")


def _is_grant(value: object) -> bool:
    return isinstance(value, LockHandle) and value.acquired


def _check_error(act: Act, outcome: Outcome, error: type[BaseException], *, calm: bool) -> None:
    episode = act.episode
    if outcome.interrupted:
        known = issubclass(error, asyncio.CancelledError | KeyboardInterrupt) and episode.interrupts
        _need(known, f"{error.__name__} is no error of the library")
        return
    if issubclass(error, LockNotAcquired):
        _need(act.busy or act.pinned or act.haunted, f"{error.__name__} although nobody held the key")
        return
    _need(not calm or act.pinned, f"{error.__name__} although nothing went wrong")
    if issubclass(error, BackendUnavailable) and not episode.script.operation.takes:
        _need(outcome.told in ("pending", "unknown"), "the error of a change tells no outcome")


def _check_handle(state: State, act: Act, handle: object, row: Row | None, now: int) -> None:
    episode, script = act.episode, act.episode.script
    assert isinstance(handle, LockHandle), handle
    own = script.operation.owner or f"{script.client}{script.number}"
    _need(handle.owner_token.startswith(own), "a handle carries another's owner token")
    _need(row is not None, "a handle of a key without a row")
    assert row is not None
    told = (handle.fencing_token, to_microseconds(handle.expires_at))
    _need(told == (row.token, row.expires), "token and expiry of a handle are not those of the row")
    if not handle.acquired:
        _need(act.busy or act.pinned, "busy although nobody held the key")
        _need(row.attempt not in episode.attempts or not held(row, now), "busy because of one's own grant")
        return
    mine = row.owner == handle.owner_token and row.attempt in episode.attempts
    _need(mine, "a grant that is not in the table")
    _need(row.token > dict(state.tops).get(row.key, 0), "a token that does not rise")


def _check_extended(act: Act, handle: object, row: Row | None, now: int) -> None:
    if handle is None:
        _need(act.lapsed, "extend says lost of a lease that was held all the time")
        return
    assert isinstance(handle, LockHandle), handle
    mine = row is not None and row.owner == act.episode.script.owner and held(row, now)
    _need(mine, "extend revived a lease that was over")
    assert row is not None
    told = (handle.acquired, handle.fencing_token, to_microseconds(handle.expires_at))
    _need(told == (True, row.token, row.expires), "extend does not tell what the row has")


def _check_released(state: State, act: Act, released: object, row: Row | None) -> None:
    if released is True:
        _need(act.freed - state.credited, "release says True of what it did not free")
    else:
        _need(act.lapsed, "release says False of a lease that was held all the time")
        as_left = row is not None and row.owner == act.episode.script.owner and row.attempt == ""
        _need(not (act.freed and as_left and act.episode.troubled), "release says False of what it freed")


def _need(condition: object, text: str) -> None:
    if not condition:
        _fail(text)


def _fail(text: str) -> None:
    raise Violation(text)
