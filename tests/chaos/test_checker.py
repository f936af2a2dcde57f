"""Each rule of the checker is seen to find what contradicts it, and to let pass what does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.checker import RULES, History, check
from tests.chaos.history import Event, Recorder, Write, load


def grant(lease: str, token: int, since: float, at: float, **more: str) -> Event:
    return Event(
        "grant", at, more.get("worker", "w"), key="k", lease=lease, token=token, since=since, seconds=2
    )


def trust(lease: str, token: int, since: float) -> Event:
    return Event("trust", since + 0.1, "w", key="k", lease=lease, token=token, since=since)


def told(kind: str, at: float, lease: str = "", note: str = "", worker: str = "w") -> Event:
    return Event(kind, at, worker, key="k", lease=lease, note=note)


STARTED, STOPPED = told("started", 0), told("stopped", 100)
FIRST, SECOND = grant("one", 10, 1, 2), grant("two", 20, 4, 5)
FIRST_ENDS, SECOND_ENDS = told("end", 4.5, "one", "released"), told("end", 9, "two", "released")
WRITE, LATER_WRITE = Write("k", 1, 10, "one"), Write("k", 2, 20, "two")
GOOD = (STARTED, FIRST, trust("one", 10, 3), FIRST_ENDS, SECOND, trust("two", 20, 6), SECOND_ENDS, STOPPED)
OUTAGE = replace(told("outage", 8), since=5)
BUSY = Event("busy", 7, "w", key="k", since=6)
GOOD_HISTORIES = {
    "a hand-over": History(GOOD, [WRITE, LATER_WRITE], keys=["k"], progress=2),
    "trust up to the moment of the next grant": History((*GOOD, trust("one", 10, 4.9))),
    "trust for a while after an operator's break": History(
        (*GOOD, replace(told("broken", 4), since=3.9), trust("one", 10, 5.5))
    ),
    "grants that were asked for at the same time, told in either order": History(
        (STARTED, replace(FIRST, token=30), replace(SECOND, since=1.5), FIRST_ENDS, SECOND_ENDS, STOPPED)
    ),
    "a killed process with its lease": History((STARTED, FIRST, told("killed", 3))),
    "a loss that is told before the end": History(
        (STARTED, FIRST, told("loss", 3, "one"), told("end", 3.1, "one", "given up"), STOPPED)
    ),
    "an answer that came from before an outage": History((*GOOD, OUTAGE, replace(BUSY, since=4.9))),
    "an answer that came after an outage": History((*GOOD, OUTAGE, replace(BUSY, at=8.1))),
    "silence of somebody else": History((*GOOD, replace(OUTAGE, worker="v"), BUSY)),
    "two writes under one token": History(GOOD, [WRITE, replace(WRITE, number=2)]),
}
BAD_HISTORIES: dict[str, tuple[str, History]] = {
    "trust after a later grant": (
        "no_trust_after_a_later_grant",
        History((*GOOD, trust("one", 10, 5.1))),
    ),
    "an extension after a later grant": (
        "no_trust_after_a_later_grant",
        History((*GOOD, replace(trust("one", 10, 5.1), kind="extended"))),
    ),
    "trust that goes on after a break": (
        "no_trust_after_a_later_grant",
        History((*GOOD, replace(told("broken", 4), since=3.9), trust("one", 10, 6.5))),
    ),
    "a break before the grant excuses nothing": (
        "no_trust_after_a_later_grant",
        History((*GOOD, replace(told("broken", 0.9), since=0.8), trust("one", 10, 5.1))),
    ),
    "a token that falls": ("tokens_rise", History((*GOOD, grant("two", 15, 6, 7)))),
    "a token that comes twice": ("tokens_rise", History((*GOOD, grant("two", 20, 1, 7)))),
    "a stale write": ("no_stale_write", History(GOOD, [LATER_WRITE, replace(WRITE, number=3)])),
    "a lost update": ("no_lost_update", History(GOOD, [WRITE, replace(WRITE, token=20)])),
    "a counter that skipped": ("no_lost_update", History(GOOD, [WRITE, replace(LATER_WRITE, number=3)])),
    "a committed write that is gone": (
        "no_lost_update",
        History((*GOOD, replace(told("written", 7, "two"), token=20, number=2)), [WRITE]),
    ),
    "a loss that is told twice": (
        "loss_is_told_once",
        History((*GOOD, told("loss", 3, "one"), told("loss", 3.1, "one"))),
    ),
    "a loss that is told after the give-back": (
        "loss_is_told_once",
        History((*GOOD, told("loss", 9.5, "two"))),
    ),
    "a lease without an end": ("every_lease_ends", History((STARTED, FIRST, STOPPED))),
    "a lease with two ends": ("every_lease_ends", History((*GOOD, replace(SECOND_ENDS, at=9.5)))),
    "a worker that hangs": ("every_worker_ends", History(GOOD[:-1])),
    "a worker that died": ("every_worker_ends", History((*GOOD, told("died", 50, note="exit code 1")))),
    "a driver's error": ("errors_are_the_librarys", History((*GOOD, told("error", 7, note="OSError")))),
    "busy in silence": ("silence_is_unknown", History((*GOOD, OUTAGE, BUSY))),
    "a grant in silence": ("silence_is_unknown", History((*GOOD, OUTAGE, grant("two", 30, 6, 7)))),
    "a key that stays held": ("nothing_stays_held", History(GOOD, held=["k"])),
    "a key that nobody got": ("every_key_makes_progress", History(GOOD, keys=["k", "other"], progress=1)),
}


@pytest.mark.parametrize("history", GOOD_HISTORIES.values(), ids=GOOD_HISTORIES)
def test_a_good_history_passes(history: History) -> None:
    assert check(history) == []


@pytest.mark.parametrize(("rule", "history"), BAD_HISTORIES.values(), ids=BAD_HISTORIES)
def test_a_bad_history_is_found_by_its_rule(rule: str, history: History) -> None:
    assert rule in {violation.rule for violation in check(history)}


def test_every_rule_is_seen_to_fail() -> None:
    assert {rule for rule, _ in BAD_HISTORIES.values()} == {rule.__name__ for rule in RULES}


def recorded(directory: Path, events: Sequence[Event]) -> list[Event]:
    """Return events after their way through the files."""
    for event in events:
        recorder = Recorder(directory / f"{event.worker}.jsonl", event.worker)
        recorder.tell(
            event.kind, at=event.at, key=event.key, lease=event.lease, token=event.token, since=event.since
        )
        recorder.close()
    return load(directory)


def test_a_history_is_read_as_it_was_written_in_the_order_of_time(tmp_path: Path) -> None:
    events = [grant("one", 10, 1, 2, worker="a"), grant("two", 20, 0, 1, worker="b")]
    stored = recorded(tmp_path, events)
    assert stored == [replace(event, seconds=0.0) for event in reversed(events)]


def test_a_line_that_a_kill_tore_is_left_out(tmp_path: Path) -> None:
    assert len(recorded(tmp_path, [FIRST])) == 1
    with (tmp_path / "w.jsonl").open("ab") as file:
        file.write(SECOND.line[:20])
    assert [event.lease for event in load(tmp_path)] == ["one"]
