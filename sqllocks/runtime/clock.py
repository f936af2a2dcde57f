"""The local clock: monotonic, and running on while the machine sleeps where that can be had."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["now"]


def _choose() -> Callable[[], float]:
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    if boottime is None:
        return time.monotonic
    return lambda: time.clock_gettime(boottime)


now: Callable[[], float] = _choose()
"""Seconds since an arbitrary moment."""
