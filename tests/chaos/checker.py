"""Judges a history: each rule is one function that returns what contradicts it.

A process that is stopped can do nothing, so it is judged only by what it claims while it runs. Times
count as they are certain: a grant from when its answer was there, a claim from before it was looked at.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tests.chaos.history import Event, Write

__all__ = ["RULES", "History", "Violation", "check"]


@dataclass(frozen=True, slots=True)
class Violation:
    """What contradicts a rule."""

    rule: str
    text: str


@dataclass
class History:
    """All that is known of a run."""

    events: Sequence[Event]
    writes: Sequence[Write] = ()
    held: Sequence[str] = ()
    """The keys that were held after the last ttl was over."""
    keys: Sequence[str] = ()
    progress: int = 0
    """How often each of the keys must have been granted."""
    _by_kind: dict[str, list[Event]] = field(init=False)

    def __post_init__(self) -> None:
        self._by_kind = defaultdict(list)
        for event in sorted(self.events, key=lambda event: event.at):
            self._by_kind[event.kind].append(event)

    def of(self, *kinds: str) -> Iterator[Event]:
        """Return the events of some kinds, each kind by time."""
        for kind in kinds:
            yield from self._by_kind.get(kind, ())

    @cached_property
    def granted(self) -> dict[str, Event]:
        """The grant of each lease."""
        return {event.lease: event for event in self.of("grant")}

    @cached_property
    def longest(self) -> dict[str, float]:
        """The longest ttl of each lease."""
        longest: dict[str, float] = defaultdict(float)
        for event in self.of("grant", "extended"):
            longest[event.lease] = max(longest[event.lease], event.seconds)
        return longest


class Newest:
    """The greatest token of a key that was surely granted at a moment."""

    def __init__(self, grants: Iterable[Event]) -> None:
        self._times: dict[str, list[float]] = defaultdict(list)
        self._tokens: dict[str, list[int]] = defaultdict(list)
        for grant in sorted(grants, key=lambda grant: grant.at):
            tokens = self._tokens[grant.key]
            tokens.append(max(grant.token, tokens[-1] if tokens else 0))
            self._times[grant.key].append(grant.at)

    def at(self, key: str, moment: float) -> int:
        """Return the token, 0 before the first grant."""
        number = bisect_right(self._times[key], moment)
        return self._tokens[key][number - 1] if number else 0


def no_trust_after_a_later_grant(history: History) -> Iterator[str]:
    """Nobody may believe that it holds a key after somebody with a greater token got it.

    An operator's break is the exception: the holder learns of it at its next renewal, and by its
    deadline at the latest.
    """
    newest = Newest(history.of("grant"))
    broken: dict[str, list[Event]] = defaultdict(list)
    for event in history.of("broken"):
        broken[event.key].append(event)
    for event in history.of("trust", "extended"):
        later = newest.at(event.key, event.since)
        grant = history.granted.get(event.lease)
        if later <= event.token or grant is None:
            continue
        ttl = history.longest[event.lease]
        if not any(each.at > grant.since and event.since < each.at + ttl for each in broken[event.key]):
            yield (
                f"{event.worker} believed at {event.since:.4f} to hold {event.key!r} with token "
                f"{event.token} ({event.kind} of {event.lease}), after the grant of {later}"
            )


def tokens_rise(history: History) -> Iterator[str]:
    """A grant that was asked for after another one was there has the greater token; none comes twice."""
    newest = Newest(history.of("grant"))
    for key_and_token, count in Counter((grant.key, grant.token) for grant in history.of("grant")).items():
        if count > 1:
            yield f"{key_and_token[0]!r} was granted {count} times with token {key_and_token[1]}"
    for grant in history.of("grant"):
        earlier = newest.at(grant.key, grant.since)
        if earlier > grant.token:
            yield f"{grant.lease} got token {grant.token} of {grant.key!r} after {earlier} was granted"


def no_stale_write(history: History) -> Iterator[str]:
    """No guarded write has a token lower than that of an earlier one."""
    highest: dict[str, Write] = {}
    for write in sorted(history.writes, key=lambda write: (write.key, write.number)):
        before = highest.setdefault(write.key, write)
        if write.token < before.token:
            yield (
                f"write {write.number} of {write.key!r} has token {write.token} of {write.worker}, "
                f"after write {before.number} with {before.token} of {before.worker}"
            )
        else:
            highest[write.key] = write


def no_lost_update(history: History) -> Iterator[str]:
    """The counter that guarded transactions read and write counts each of them."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for write in history.writes:
        numbers[write.key].append(write.number)
    for key, found in numbers.items():
        for number, count in Counter(found).items():
            if count > 1:
                yield f"{count} writes of {key!r} made the counter {number}"
        if len(set(found)) != max(found):
            yield f"the counter of {key!r} is {max(found)} after {len(set(found))} different writes"
    stored = {(write.key, write.number, write.token) for write in history.writes}
    for event in history.of("written"):
        if (event.key, event.number, event.token) not in stored:
            yield f"write {event.number} of {event.key!r} by {event.lease} was committed and is not there"


def loss_is_told_once(history: History) -> Iterator[str]:
    """Loss is told at most once for each lease, and not after it was given back."""
    for lease, count in Counter(event.lease for event in history.of("loss")).items():
        if count > 1:
            yield f"the loss of {lease} was told {count} times"
    released = {event.lease: event.at for event in history.of("end") if event.note == "released"}
    for event in history.of("loss"):
        if event.at > released.get(event.lease, event.at):
            yield f"the loss of {event.lease} was told after it was given back"


def every_lease_ends(history: History) -> Iterator[str]:
    """Each lease has one end, but for those of killed processes."""
    ends = Counter(event.lease for event in history.of("end"))
    killed = {event.worker for event in history.of("killed")}
    for lease, grant in history.granted.items():
        if ends[lease] > 1 or (ends[lease] == 0 and grant.worker not in killed):
            yield f"{lease} of {grant.key!r} has {ends[lease]} ends"


def every_worker_ends(history: History) -> Iterator[str]:
    """A worker process ends in order, or is killed by the injector."""
    ended = {event.worker for event in history.of("stopped", "killed")}
    for event in history.of("started"):
        if event.worker not in ended:
            yield f"{event.worker} did not come to its end"
    for event in history.of("died"):
        yield f"{event.worker} died by itself: {event.note}"


def errors_are_the_librarys(history: History) -> Iterator[str]:
    """A call of the library raises the library's errors alone."""
    for event in history.of("error"):
        yield f"{event.worker}: {event.note}"


def silence_is_unknown(history: History) -> Iterator[str]:
    """Who can reach nobody is told neither that a key is busy nor that it is its own."""
    outages: dict[str, list[Event]] = defaultdict(list)
    for event in history.of("outage"):
        outages[event.worker].append(event)
    for event in history.of("busy", "grant", "extended"):
        for outage in outages[event.worker]:
            if outage.since < event.since and event.at < outage.at:
                yield (
                    f"{event.worker} was told {event.kind} of {event.key!r} at {event.at:.4f} (asked at "
                    f"{event.since:.4f}), and could reach nobody from {outage.since:.4f} to {outage.at:.4f}"
                )


def nothing_stays_held(history: History) -> Iterator[str]:
    """After the run and the longest ttl every key is free."""
    for key in history.held:
        yield f"{key!r} is still held"


def every_key_makes_progress(history: History) -> Iterator[str]:
    """Each key was granted often enough."""
    grants = Counter(grant.key for grant in history.of("grant"))
    for key in history.keys:
        if grants[key] < history.progress:
            yield f"{key!r} was granted {grants[key]} times, not {history.progress}"


RULES: tuple[Callable[[History], Iterator[str]], ...] = (
    no_trust_after_a_later_grant,
    tokens_rise,
    no_stale_write,
    no_lost_update,
    loss_is_told_once,
    every_lease_ends,
    every_worker_ends,
    errors_are_the_librarys,
    silence_is_unknown,
    nothing_stays_held,
    every_key_makes_progress,
)


def check(history: History) -> list[Violation]:
    """Return all that contradicts any rule."""
    return [Violation(rule.__name__, text) for rule in RULES for text in rule(history)]
