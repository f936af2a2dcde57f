"""What must never happen to processes and their leases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from tests.exploration.asks import Query, Ready
from tests.exploration.families import GUARDED, LOCKED, WRITER
from tests.exploration.processes.lives import Belief, Life
from tests.exploration.processes.port import FOREVER
from tests.exploration.processes.tasks import Fact
from tests.exploration.processes.world import DATABASE_START, State
from tests.exploration.table import RELEASED, Row, held
from tests.exploration.violation import Violation

__all__ = ["SLACK", "check_beliefs", "check_change", "check_end", "check_fact", "check_told", "sleeps"]

SLACK = 1000
"""Microseconds that a loss may be told late by the rounding of timers."""


def check_change(before: State, after: Mapping[str, Row], query: Query) -> None:
    """Rows change as locks do, and a purge removes what nobody could miss."""
    now, pins = before.database, {pin.key: pin.kind for pin in before.pins}
    for old in before.rows:
        if old.key not in after:
            idle = not held(old, now) and old.expires <= now - query.idle and query.idle > 0
            _need(idle, f"the row of {old.key!r} was removed too early")
            _need(old.key not in pins, f"the pinned row of {old.key!r} was removed")
    for key, row in after.items():
        old_row = before.row(key)
        if old_row == row:
            continue
        if old_row is None or row.token != old_row.token:
            _need(not held(old_row, now), f"a lease of {key!r} was taken over before it ended")
            _need(row.token > dict(before.tops).get(key, 0), f"the token of {key!r} did not rise")
            _need(key not in pins, f"{key!r} was granted although a transaction pins its row")
        else:
            _check_kept(before, old_row, row, query)
            _need(pins.get(key) not in (LOCKED, WRITER), f"the locked row of {key!r} was changed")


def _check_kept(before: State, old: Row | None, row: Row, query: Query) -> None:
    """The same grant is renewed while it lasts (after a guard, longer), or ends, but not too early."""
    if query.statement == "revive":
        own = old is not None and any(want.attempt == old.attempt for want in query.wants)
        _need(own, f"{row.key!r} was revived by somebody else")
    else:
        _need(held(old, before.database), f"{row.key!r} was changed although its lease was over")
    if query.kind == "release":
        facts = (fact for life in before.lives if life for fact in life.facts if fact.what == "granted")
        minimum = [fact.detail for fact in facts if (fact.key, fact.token) == (row.key, row.token)]
        for least in minimum:
            early = isinstance(least, int) and row.expires < row.acquired + least
            _need(not early, f"{row.key!r} became free before its minimum hold was over")


def check_beliefs(state: State) -> None:
    """Whoever trusts a lease has it, and not for longer than the row says."""
    for life in state.lives:
        for belief in life.beliefs if life else ():
            _need(belief.told <= 1, f"the loss of token {belief.token} was told {belief.told} times")
            if life and belief.kept and not belief.lost:
                _check_belief(state, life, belief)


def _check_belief(state: State, life: Life, belief: Belief) -> None:
    row = state.row(belief.key)
    backed = row is not None and (row.token, row.attempt) == (belief.token, belief.attempt)
    # that nobody takes a pinned row is checked where rows change
    if belief.until > state.now and not belief.pins:
        _need(backed, f"a lease of {belief.key!r} is trusted that the table does not have")
        assert row is not None
        ahead = belief.until + DATABASE_START > row.expires
        _need(not ahead, f"the lease of {belief.key!r} is trusted for longer than it is stored")
        # what is shown to people is the last expiry that was told
        told = belief.changing or life.troubled or belief.expires <= row.expires
        _need(told, f"the expiry of {belief.key!r} is believed later than stored")


def check_told(state: State, life: Life) -> None:
    """When all timers that were due have run, a lease that is over was told to be lost."""
    for belief in life.beliefs:
        over = belief.kept and not belief.pins and belief.until + SLACK < state.now
        _need(not over, f"nobody tells that the lease of {belief.key!r} is lost")
        _need(
            not belief.lost or belief.told == 1 or not belief.kept,
            f"the loss of token {belief.token} was not told",
        )


def check_fact(state: State, place: int, life: Life, fact: Fact) -> None:
    """What a task was told is true at that moment."""
    check = _CHECKS.get(fact.what)
    if check is not None:
        check(state, place, life, fact)


def _granted(state: State, place: int, life: Life, fact: Fact) -> None:
    row = state.row(fact.key)
    own = row is not None and (row.owner, row.token) == (fact.owner, fact.token)
    _need(own, f"a grant of {fact.key!r} that is not in the table")
    came = [asked.owner for asked in life.facts if asked.what == "waits" and asked.key == fact.key]
    if fact.owner in came and _alone(life, fact.owner):
        earlier = set(came[: came.index(fact.owner)]) & set(_waiting(life, fact.key))
        passed = any(_alone(life, owner) for owner in earlier)
        _need(not passed, f"{fact.key!r} went to one who came later")


def _alone(life: Life, owner: str) -> bool:
    """Tell whether this is a request for one key: those for several step out of line in between."""
    return sum(fact.what in ("asks", "waits") and fact.owner == owner for fact in life.facts) == 1


def _waiting(life: Life, key: str) -> Iterator[str]:
    """Return the owners whose request of this key has no answer yet, the first one first."""
    answered = {
        fact.owner for fact in life.facts if fact.what in ("granted", "refused", "timed out", "mixed")
    }
    for fact in life.facts:
        if fact.what == "waits" and fact.key == key and fact.owner not in answered:
            yield fact.owner


def _refused(state: State, place: int, life: Life, fact: Fact) -> None:
    if _promised_nothing(state, life):
        return
    row = state.row(fact.key)
    left = held(row, state.database) and row is not None and row.owner == fact.owner
    _need(not left, f"a request for {fact.key!r} that did not succeed left its lease behind")


def _timed_out(state: State, place: int, life: Life, fact: Fact) -> None:
    _refused(state, place, life, fact)
    taken = held(state.row(fact.key), state.database) or any(pin.key == fact.key for pin in state.pins)
    others = any(owner != fact.owner for owner in _waiting(life, fact.key))
    several = not _alone(life, fact.owner)
    _need(taken or others or several or life.troubled, f"a wait for {fact.key!r} ran out although it is free")


def _mixed(state: State, place: int, life: Life, fact: Fact) -> None:
    _need(condition=False, text="some keys of a batch were granted and others were not")


def _checked(state: State, place: int, life: Life, fact: Fact) -> None:
    row = state.row(fact.key)
    own = row is not None and (row.owner, row.token) == (fact.owner, fact.token)
    pinned = any(pin.key == fact.key and pin.place == place for pin in state.pins)
    alive = held(row, state.database) or pinned
    _need(own and alive, f"a check of {fact.key!r} passes although the lease is over")


def _lost(state: State, place: int, life: Life, fact: Fact) -> None:
    if any(other.what == "closes" for other in life.facts):
        return  # a shutdown tells before it gives back
    row = state.row(fact.key)
    grant = (fact.key, fact.token)
    belief = next(belief for belief in life.beliefs if (belief.key, belief.token) == grant)
    own = row is not None and row.token == fact.token and row.attempt == belief.attempt
    kept = own and held(row, state.database) and belief.until > state.now
    pinned = own and any(
        (pin.key, pin.place) == (fact.key, place) and pin.kind != GUARDED for pin in state.pins
    )
    _need(not pinned, f"the lease of {fact.key!r} is said to be lost while its row is pinned")
    _need(not kept, f"the lease of {fact.key!r} is said to be lost while it is held")


def _ended(state: State, place: int, life: Life, fact: Fact) -> None:
    later = any(pin.key == fact.key and pin.place == place for pin in state.pins)
    freed = (fact.key, fact.token) in state.freed or later
    _need(freed, f"a block of {fact.key!r} ends as if it had held the lease all the time")


def _lost_at_end(state: State, place: int, life: Life, fact: Fact) -> None:
    grant = (fact.key, fact.token)
    told = any(other.what == "lost" and (other.key, other.token) == grant for other in life.facts)
    _need(
        told or grant not in state.freed,
        f"the lease of {fact.key!r} is said to be lost although the block gave it back",
    )


_CHECKS: Mapping[str, Callable[[State, int, Life, Fact], None]] = {
    "granted": _granted,
    "refused": _refused,
    "timed out": _timed_out,
    "mixed": _mixed,
    "checked": _checked,
    "guarded": _checked,
    "lost": _lost,
    "released": _ended,
    "ended": _ended,
    "lost at the end": _lost_at_end,
}


def check_end(state: State, asleep: Mapping[int, list[str]]) -> None:
    """Where nothing can happen any more, nobody waits and nothing is left."""
    for place, asks in asleep.items():
        _need(not asks, f"{'ABCDEFGH'[place]} waits for ever: {', '.join(asks)}")
    owners = {fact.owner for life in state.lives if life for fact in life.facts}
    lost = {belief.token for life in state.lives if life for belief in life.beliefs if belief.lost}
    quiet = not any(_promised_nothing(state, life) for life in state.lives if life)
    for row in state.rows:
        left = held(row, state.database) and row.attempt != RELEASED and row.owner in owners
        known = row.token in lost or any(
            fact.what == "granted" and fact.owner == row.owner and fact.detail is None
            for life in state.lives
            if life
            for fact in life.facts
        )
        _need(not left or known or not quiet, f"the lease of {row.key!r} was never given back")


def _promised_nothing(state: State, life: Life) -> bool:
    """Tell whether the core said that it may have left something, or a claim came after its undo."""
    return bool(state.haunted) or any("may stay taken" in text for text in life.complained)


def sleeps(life: Life) -> list[str]:
    """Return what the tasks of a process wait for, where only somebody else could wake them."""
    return [
        str(pending.ask)
        for pending in life.pending
        if pending.ask is not None
        and not isinstance(pending.ask, Ready)
        and not (pending.strand >= life.tasks and getattr(pending.ask, "seconds", 0) >= FOREVER)
    ]


def _need(condition: object, text: str) -> None:
    if not condition:
        raise Violation(text)
