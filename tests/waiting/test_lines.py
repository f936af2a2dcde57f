"""The line of a key: who is its head, when it asks, and what it knows."""

from __future__ import annotations

from collections.abc import Hashable
from datetime import UTC, datetime, timedelta

import pytest

from sqllocks.core.lines import QUICK_CEILING, QUICK_FOR, Line, Lines
from sqllocks.dialects.base import StoredLock, Want
from sqllocks.errors import BackendUnavailable
from sqllocks.model import LockHandle
from sqllocks.policy import WAIT_CEILING, WAIT_FLOOR

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


class Event:
    """Notes that it was set."""

    def __init__(self, home: Hashable = None) -> None:
        self.home = home
        self.times = 0

    def set(self) -> None:
        self.times += 1

    async def wait(self, seconds: float) -> bool:
        raise AssertionError("nobody sleeps here")


class Watch:
    """A watch that is active when the test says so."""

    def __init__(self, *, active: bool) -> None:
        self.active = active
        self.closed = False

    def close(self) -> None:
        self.closed = True


def row(*, token: int = 1, lasts: float = 60.0, held: bool = True, seen: float = 0.0) -> StoredLock:
    seen_at = MOMENT + timedelta(seconds=seen)
    return StoredLock(
        key="k",
        owner="o",
        attempt="a",
        kind="lease",
        holder="h",
        server_lock="",
        token=token,
        acquired_at=MOMENT,
        expires_at=seen_at + timedelta(seconds=lasts),
        held=held,
        seen_at=seen_at,
    )


def naps(line: Line, seconds: float, start: float = 0.0) -> list[float]:
    """Return the pauses of a head that always finds the key held."""
    now, found = start, []
    while now < start + seconds:
        line.asking()
        line.saw(row(seen=now), now, sent=now)
        found.append(line.nap(now))
        now += found[-1]
    return found


def test_the_first_to_come_is_the_head_and_the_next_one_follows() -> None:
    lines, events = Lines(), [Event() for _ in range(3)]
    line = lines.join("k", events[0], 0.0)
    assert all(lines.join("k", event, 0.0) is line for event in events[1:])
    assert [line.led_by(event) for event in events] == [True, False, False]
    lines.leave(line, events[0])
    assert line.led_by(events[1])
    assert [event.times for event in events] == [0, 1, 0]


def test_one_who_leaves_from_the_middle_wakes_nobody() -> None:
    lines, events = Lines(), [Event() for _ in range(3)]
    for event in events:
        line = lines.join("k", event, 0.0)
    lines.leave(line, events[1])
    assert [event.times for event in events] == [0, 0, 0]
    lines.leave(line, events[0])
    assert line.led_by(events[2])


def test_a_line_ends_with_its_last_waiter_and_its_watch_with_it() -> None:
    lines, event = Lines(), Event()
    line = lines.join("k", event, 0.0)
    line.watch = watch = Watch(active=True)
    lines.leave(line, event)
    assert watch.closed
    assert lines.join("k", Event(), 0.0) is not line


def test_loops_and_threads_have_lines_of_their_own() -> None:
    lines, thread, loop = Lines(), Event(), Event(home="a loop")
    assert lines.join("k", thread, 0.0) is not lines.join("k", loop, 0.0)
    lines.freed("k")
    assert (thread.times, loop.times) == (1, 1)


def test_a_release_that_was_told_outlives_the_head_that_it_woke() -> None:
    lines, first, second = Lines(), Event(), Event()
    line = lines.join("k", first, 0.0)
    lines.join("k", second, 0.0)
    line.saw(row(), 0.0, sent=0.0)
    line.nap(0.0)
    lines.freed("k")
    lines.leave(line, first)
    assert line.alarmed
    assert line.rest(0.0) == 0.0


def test_a_new_head_goes_on_where_the_former_one_left_off() -> None:
    lines, first, second = Lines(), Event(), Event()
    line = lines.join("k", first, 0.0)
    lines.join("k", second, 0.0)
    line.saw(row(), 0.0, sent=0.0)
    pause = line.nap(0.0)
    lines.leave(line, first)
    assert line.rest(pause / 4) == pytest.approx(pause * 3 / 4)
    assert line.rest(pause * 2) == 0.0


def test_a_new_head_asks_at_once_where_the_former_one_was_interrupted() -> None:
    line = Line("k", None, 0.0)
    line.saw(row(), 0.0, sent=0.0)
    line.nap(0.0)
    line.asking()
    assert line.rest(0.0) == 0.0


def test_pauses_grow_from_short_to_a_tenth_of_a_second_and_later_to_half_a_second() -> None:
    line = Line("k", None, 0.0)
    young = naps(line, QUICK_FOR)
    assert young[0] <= WAIT_FLOOR
    assert max(young) <= QUICK_CEILING
    assert len(young) / QUICK_FOR < 20
    old = naps(line, 30.0, start=QUICK_FOR)
    assert QUICK_CEILING < max(old) <= WAIT_CEILING


def test_pauses_are_quick_again_when_the_key_changes_hands() -> None:
    line = Line("k", None, 0.0)
    naps(line, QUICK_FOR + 10)
    line.saw(row(token=2, seen=100.0), 100.0, sent=100.0)
    assert line.nap(100.0) <= QUICK_CEILING


def test_an_error_that_has_passed_does_not_make_pauses_long() -> None:
    line = Line("k", None, 0.0)
    for _ in range(20):
        line.failed(BackendUnavailable("gone"), 1.0)
        line.nap(1.0)
    line.saw(row(), 1.0, sent=1.0)
    assert line.nap(1.0) <= QUICK_CEILING


def test_no_pause_goes_past_the_expiry() -> None:
    line = Line("k", None, 0.0)
    naps(line, 2.0)
    line.saw(row(lasts=0.05, seen=2.0), 2.0, sent=2.0)
    assert line.nap(2.0) == pytest.approx(0.05)
    assert line.nap(2.04) == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("before", "after", "long"), [(True, True, True), (False, True, False), (True, False, False)]
)
def test_a_pause_is_long_only_where_no_release_can_be_missed(before: bool, after: bool, long: bool) -> None:
    line = Line("k", None, 0.0)
    line.watch = watch = Watch(active=before)
    line.asking()
    line.saw(row(), 0.0, sent=0.0)
    watch.active = after
    assert (line.nap(0.0) > QUICK_CEILING) is long


def test_a_free_row_that_is_locked_is_asked_for_often() -> None:
    line = Line("k", None, 0.0)
    line.watch = Watch(active=True)
    line.asking()
    line.saw(row(held=False), 0.0, sent=0.0)
    assert line.nap(0.0) <= QUICK_CEILING


def test_an_older_look_does_not_replace_a_later_one() -> None:
    line = Line("k", None, 0.0)
    assert line.saw(row(token=2, seen=1.0), 1.0, sent=0.9)
    assert not line.saw(row(token=1, seen=1.5), 1.1, sent=0.8)
    assert line.row is not None
    assert line.row.token == 2
    # not by the server's clock, which another server may have set back
    assert line.saw(row(token=3, seen=-3600.0), 2.0, sent=1.9)


def test_an_error_counts_until_the_next_answer() -> None:
    line = Line("k", None, 0.0)
    line.failed(BackendUnavailable("gone"), 0.0)
    assert line.error is not None
    line.saw(row(), 1.0, sent=1.0)
    assert line.error is None


def test_a_grant_tells_the_next_one_who_holds_the_key() -> None:
    line = Line("k", None, 0.0)
    handle = LockHandle(True, "k", "o", MOMENT + timedelta(seconds=30), 7)
    line.granted(Want("k", "o", "a", 30_000_000, "me"), handle, 5.0)
    assert line.held
    assert line.row is not None
    assert (line.row.holder, line.row.token, line.row.acquired_at) == ("me", 7, MOMENT)
    assert 0 < line.rest(5.0) <= QUICK_CEILING


def test_lines_that_look_soon_share_a_look() -> None:
    lines = Lines()
    found = {key: lines.join(key, Event(), 0.0) for key in ("a", "b", "c", "d")}
    found["e"] = lines.join("e", Event(home="a loop"), 0.0)
    found["b"].due, found["c"].due = 1.02, 2.0
    found["d"].asking()
    assert [line.key for line in lines.due_with(found["a"], 1.0)] == ["a", "b"]
