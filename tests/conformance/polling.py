"""Wait for something to become true, never for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PAUSE = 0.005


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
