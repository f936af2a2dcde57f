"""Wait for something to become true, never for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from sqllocks import LeaseLost, StaleFencingToken

T = TypeVar("T")

PAUSE = 0.005
BETWEEN_LOOKS = 0.02


def until(look: Callable[[], T], *, within: float = 5.0, what: str = "") -> T:
    """Return the first true answer of ``look``; fail once ``within`` seconds are over."""
    limit = time.monotonic() + within
    while True:
        answer = look()
        if answer:
            return answer
        if time.monotonic() > limit:
            raise AssertionError(f"not within {within} s: {what or look}")
        time.sleep(PAUSE)


def throughout(seconds: float, look: Callable[[], object]) -> int:
    """Assert that every answer of ``look`` is true for so long; return how many there were.

    It pauses between two looks: cases that run beside this one need the machine as well.
    """
    limit = time.monotonic() + seconds
    looks = 0
    while time.monotonic() < limit:
        assert look(), f"no more after {seconds - limit + time.monotonic():.2f} s: {look}"
        looks += 1
        time.sleep(BETWEEN_LOOKS)
    return looks


def with_time_enough(attempt: Callable[[float], None], ttls: Sequence[float] = (0.5, 2.0, 8.0)) -> None:
    """Run an attempt that is over soon with a short ttl; where a lease did not last, with a longer one.

    On a busy machine a holder may stand still for longer than a short ttl, which rightly ends its lease.
    """
    for ttl in ttls[:-1]:
        try:
            attempt(ttl)
        except (AssertionError, LeaseLost, StaleFencingToken):
            continue
        return
    attempt(ttls[-1])


class Stopwatch:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    @property
    def seconds(self) -> float:
        """Return the seconds that have gone by."""
        return time.monotonic() - self._start


def quickly(attempt: Callable[[], float], *, within: float, tries: int = 3) -> None:
    """Assert that an attempt, which tells its seconds, is quick; a busy machine has some more tries."""
    seconds = []
    for _ in range(tries):
        seconds.append(attempt())
        if seconds[-1] < within:
            return
    raise AssertionError(f"not within {within} s: {seconds}")
