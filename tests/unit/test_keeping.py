"""When the keeper looks again: never later than what it keeps is due."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from sqllocks.backends.base import Answers, Capabilities
from sqllocks.core.keeping import Keeper
from sqllocks.core.kept import Kept
from sqllocks.core.naming import Names
from sqllocks.dialects.base import Answer, Verdict, Want
from sqllocks.runtime.blocking import drive

TTL = 15_000_000
PERIOD = TTL / 3_000_000


class Ended(Exception):
    """The pause that the test is about."""


class Stage:
    """Clock, backend and background of a keeper, all in one thread."""

    def __init__(self) -> None:
        self.time = 0.0
        self.woken = False
        self.linger = 5.0
        self.in_pause: list[Callable[[], None]] = []
        self.in_release: list[Callable[[], None]] = []
        self.in_renew: list[Callable[[], None]] = []
        self.paused: list[float] = []
        stage: Any = self
        self.keeper = Keeper(
            stage, stage, Names(Capabilities(single_writer=False, table="core_locks")), stage
        )

    def now(self) -> float:
        return self.time

    def ensure(self, run: Callable[[], Coroutine[Any, Any, None]], busy: Callable[[], bool]) -> None:
        pass

    def wake(self) -> None:
        self.woken = True

    async def pause(self, seconds: float) -> None:
        if not self.woken:
            self.paused.append(seconds)
            if not self.in_pause:
                raise Ended
            self.in_pause.pop(0)()
        self.woken = False

    async def release(self, wants: Sequence[Want]) -> Answers:
        if self.in_release:
            self.in_release.pop(0)()
        return {want.key: Answer(Verdict.DONE) for want in wants}

    async def renew(self, wants: Sequence[Want], **options: bool) -> Answers:
        if self.in_renew:
            self.in_renew.pop(0)()
        return {want.key: Answer(Verdict.DONE) for want in wants}

    def alarm(self, seconds: float, ring: Callable[[], None]) -> Stage:
        return self

    def cancel(self) -> None:
        pass

    def kept(self, key: str) -> Kept:
        return Kept(
            Want(key, "owner", "attempt", TTL),
            1,
            datetime.now(UTC),
            deadline=self.time + TTL / 1_000_000 - 1,
            due=self.time + PERIOD,
            zero=datetime.now(UTC),
        )


def test_a_lease_kept_while_a_release_is_in_flight_is_renewed_in_time() -> None:
    stage = Stage()
    keeper, dropped = stage.keeper, stage.kept("dropped")
    keeper.keep(dropped)

    def drop() -> None:
        keeper.let_go(dropped)
        keeper.release_later(dropped.release, TTL)

    def hold_another() -> None:
        stage.time = 1.0
        keeper.keep(stage.kept("held"))

    stage.in_pause.append(drop)
    stage.in_release.append(hold_another)
    with pytest.raises(Ended):
        drive(keeper.run())
    # the keeper slept until the first was due, gave it back, and sleeps until the other one is
    assert stage.paused == [PERIOD, PERIOD]


def test_a_lease_kept_while_others_are_renewed_wakes_nobody_and_is_renewed_in_time() -> None:
    stage = Stage()
    stage.keeper.keep(stage.kept("first"))
    woken = []

    def pass_time() -> None:
        stage.time = PERIOD

    def hold_another() -> None:
        stage.woken = False
        stage.keeper.keep(stage.kept("second"))
        woken.append(stage.woken)
        stage.time = PERIOD + 1

    stage.in_pause.append(pass_time)
    stage.in_renew.append(hold_another)
    with pytest.raises(Ended):
        drive(stage.keeper.run())
    assert woken == [False]
    # both are due a period after they were taken or renewed, which was at the same moment
    assert stage.paused == [PERIOD, PERIOD - 1]


def test_a_lease_with_a_short_ttl_ends_the_pause_of_the_keeper() -> None:
    stage = Stage()
    stage.keeper.keep(stage.kept("long"))
    woken = []

    def hold_two() -> None:
        for key, due in (("later", 2 * PERIOD), ("sooner", PERIOD / 2)):
            stage.woken = False
            kept = stage.kept(key)
            kept.due = due
            stage.keeper.keep(kept)
            woken.append(stage.woken)

    stage.in_pause.append(hold_two)
    with pytest.raises(Ended):
        drive(stage.keeper.run())
    assert woken == [False, True]
    assert stage.paused == [PERIOD, PERIOD / 2]
