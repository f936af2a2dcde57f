"""The queue that decides which calls share a statement."""

from __future__ import annotations

from collections.abc import Sequence
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sqllocks.core import combining
from sqllocks.core.combining import MOST_PASSES, Call, Kind, Queue
from sqllocks.dialects.base import Want


def call(kind: Kind, *keys: str, values: bool = True) -> Call:
    return Call(kind, [Want(key, "owner") for key in keys], values, None)


def keys_of(calls: Sequence[Call]) -> list[str]:
    return [want.key for each in calls for want in each.wants]


def queue_of(*calls: Call, limit: int = 1) -> Queue:
    queue = Queue(limit)
    for each in calls:
        queue.add(each)
    return queue


def test_releases_go_before_renewals_and_renewals_before_claims() -> None:
    claim, renew, revive, release = (
        call(kind, kind.name) for kind in (Kind.CLAIM, Kind.RENEW, Kind.REVIVE, Kind.RELEASE)
    )
    queue = queue_of(claim, revive, renew, release)
    for expected in (release, renew, revive):
        assert queue.next() == [expected]
        queue.finish(expected)
    assert queue.next() == [claim]


def test_a_steady_stream_of_renewals_does_not_starve_a_claim() -> None:
    claim = call(Kind.CLAIM, "claimed")
    queue = queue_of(claim)
    for number in range(MOST_PASSES):
        renewal = call(Kind.RENEW, f"renewed {number}")
        queue.add(renewal)
        assert queue.next() == [renewal]
        queue.finish(renewal)
    queue.add(call(Kind.RENEW, "one more"))
    assert queue.next() == [claim]


def test_calls_for_one_key_go_one_after_the_other_in_the_order_of_their_arrival() -> None:
    claim, release, again = call(Kind.CLAIM, "k"), call(Kind.RELEASE, "k"), call(Kind.CLAIM, "k")
    queue = queue_of(claim, release, again, limit=3)
    for expected in (claim, release, again):
        assert queue.next() == [expected]
        assert queue.next() == ()
        queue.finish(expected)


def test_a_call_with_several_keys_waits_for_each_and_holds_off_later_ones() -> None:
    first, both, later = call(Kind.CLAIM, "a"), call(Kind.CLAIM, "a", "b"), call(Kind.CLAIM, "b")
    queue = queue_of(first, both, later, limit=3)
    assert queue.next() == [first]
    assert queue.next() == ()
    queue.finish(first)
    assert queue.next() == [both]
    assert queue.next() == ()
    queue.finish(both)
    assert queue.next() == [later]


def test_renewals_that_need_no_values_do_not_go_with_those_that_do() -> None:
    plain, telling = call(Kind.RENEW, "a", values=False), call(Kind.RENEW, "b")
    queue = queue_of(plain, telling)
    assert queue.next() == [plain]
    queue.finish(plain)
    assert queue.next() == [telling]


def test_a_statement_has_at_most_so_many_elements_unless_one_call_alone_has_more() -> None:
    small, large = [call(Kind.CLAIM, str(number)) for number in range(3)], call(Kind.CLAIM, *"abcde")
    queue = queue_of(*small, large)
    with mock.patch.object(combining, "MOST_TOGETHER", 2):
        batches = []
        while batch := queue.next():
            batches.append(keys_of(batch))
            queue.finish(batch[0])
    assert batches == [["0", "1"], ["2"], list("abcde")]


def test_no_more_statements_than_the_limit_are_in_flight() -> None:
    queue = queue_of(call(Kind.CLAIM, "a"), call(Kind.RELEASE, "b"), call(Kind.RENEW, "c"), limit=2)
    first, second = queue.next(), queue.next()
    assert first
    assert second
    assert queue.next() == ()
    queue.finish(second[0])
    assert queue.next()


def test_one_more_statement_goes_beside_one_that_is_overdue_but_never_for_its_keys() -> None:
    hung, same, other, third = (call(Kind.CLAIM, key) for key in ("k", "k", "other", "third"))
    queue = queue_of(hung)
    assert queue.next() == [hung]
    for each in (same, other):
        queue.add(each)
    assert queue.excuse(queue.flights) is hung
    assert queue.next() == [other]
    queue.add(third)
    assert queue.excuse([other]) is None, "only one at a time"
    assert queue.next() == ()
    queue.finish(hung)
    assert queue.next() == (), "the limit counts again"
    queue.finish(other)
    assert queue.next() == [same, third]


def test_what_has_ended_is_not_excused() -> None:
    queue = queue_of(call(Kind.CLAIM, "k"))
    flights = queue.flights
    batch = queue.next()
    assert queue.excuse(flights) is None
    queue.finish(batch[0])
    assert queue.excuse(batch) is None


def test_the_end_of_an_unknown_statement_changes_nothing() -> None:
    queue = queue_of(call(Kind.CLAIM, "k"))
    [flying] = queue.next()
    queue.add(call(Kind.RELEASE, "k"))
    queue.finish(object())
    assert queue.flights == (flying,)
    assert queue.next() == ()


def test_a_call_can_be_taken_back_until_it_is_in_flight() -> None:
    first, second = call(Kind.CLAIM, "k"), call(Kind.CLAIM, "k")
    queue = queue_of(first, second)
    assert queue.next() == [first]
    assert queue.drop(first) is False
    assert queue.drop(second) is True
    assert queue.drop(second) is False
    queue.finish(first)
    assert queue.idle


STEPS = st.one_of(
    st.tuples(
        st.just("call"),
        st.sampled_from(Kind),
        st.lists(st.sampled_from("abcde"), min_size=1, max_size=3),
        st.booleans(),
    ),
    st.tuples(st.just("go")),
    st.tuples(st.just("land"), st.integers(0, 3)),
    st.tuples(st.just("drop"), st.integers(0, 9)),
    st.tuples(st.just("alone"), st.sampled_from("abcde")),
    st.tuples(st.just("excuse")),
)


class Model:
    """What must be true of every order of events."""

    def __init__(self, limit: int) -> None:
        self.queue = Queue(limit)
        self.limit = limit
        self.arrived: list[Call] = []
        """Those that are neither in flight nor dropped."""
        self.flying: dict[object, list[str]] = {}
        self.excused: set[object] = set()
        self.passes: dict[Call, int] = {}

    def call(self, kind: Kind, keys: list[str], values: bool) -> None:
        made = call(kind, *keys, values=values)
        self.arrived.append(made)
        self.queue.add(made)

    def alone(self, key: str) -> None:
        if self.queue.idle:
            flight = object()
            self.queue.start(flight, [Want(key, "owner")])
            self.flying[flight] = [key]

    def excuse(self) -> None:
        excused = self.queue.excuse(self.queue.flights)
        if excused is not None:
            self.excused.add(excused)

    def free(self) -> list[Call]:
        taken = set(keys_of([]))
        for keys in self.flying.values():
            taken.update(keys)
        free = []
        for each in self.arrived:
            if taken.isdisjoint(keys_of([each])):
                free.append(each)
            taken.update(keys_of([each]))
        return free

    def go(self) -> bool:
        free = self.free()
        room = len(set(self.flying) - self.excused) < self.limit
        batch = self.queue.next()
        if not (free and room):
            assert batch == ()
            return False
        assert batch, "something could go and did not"
        self._check(batch, free)
        for each in batch:
            self.arrived.remove(each)
        self.flying[batch[0]] = keys_of(batch)
        return True

    def _check(self, batch: Sequence[Call], free: list[Call]) -> None:
        assert len({each.together for each in batch}) == 1
        assert [each for each in free if each in batch] == list(batch), "not in the order of arrival"
        assert set(batch) <= set(free), "a key that is in flight, or that an earlier call waits for"
        size = sum(len(each.wants) for each in batch)
        assert size <= combining.MOST_TOGETHER or len(batch) == 1
        oldest = free[0]
        self.passes[oldest] = self.passes.get(oldest, 0) + (oldest not in batch)
        assert len(self.flying) + 1 <= self.limit + 1

    def land(self, number: int) -> None:
        if self.flying:
            flight = list(self.flying)[number % len(self.flying)]
            del self.flying[flight]
            self.queue.finish(flight)

    def drop(self, number: int) -> None:
        if self.arrived:
            assert self.queue.drop(self.arrived.pop(number % len(self.arrived)))

    def drain(self) -> None:
        """Serve everything that is left."""
        for _ in range(2 * len(self.arrived) + len(self.flying) + 1):
            while self.go():
                pass
            self.land(0)
        assert not self.arrived, "a call is never served"
        assert self.queue.idle


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 3), st.lists(STEPS, max_size=40))
def test_whatever_comes_no_key_is_in_two_statements_and_every_call_is_served(
    limit: int, steps: list[tuple[object, ...]]
) -> None:
    with mock.patch.object(combining, "MOST_TOGETHER", 4):
        model = Model(limit)
        for name, *arguments in steps:
            getattr(model, str(name))(*arguments)
            flying = [key for keys in model.flying.values() for key in set(keys)]
            assert len(flying) == len(set(flying)), "two statements for one key"
            assert set(model.queue.flights) == set(model.flying)
        model.drain()


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([Kind.RELEASE, Kind.RENEW]), st.booleans()), min_size=20, max_size=40)
)
def test_with_one_statement_at_a_time_the_oldest_call_is_passed_a_few_times_at_most(
    stream: list[tuple[Kind, bool]],
) -> None:
    model = Model(1)
    for number, (kind, values) in enumerate(stream):
        model.call(Kind.CLAIM if number % 5 == 0 else kind, [f"key {number}"], values)
        model.go()
        model.land(0)
    model.drain()
    assert max(model.passes.values()) <= MOST_PASSES


@pytest.mark.parametrize("kind", list(Kind))
def test_calls_without_keys_are_served_too(kind: Kind) -> None:
    queue = queue_of(call(kind))
    [served] = queue.next()
    assert queue.next() == ()
    queue.finish(served)
    assert queue.idle
