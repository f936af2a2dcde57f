"""Waiting for what happens elsewhere: polled, with a deadline."""

from __future__ import annotations

import os
import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], limit: float = 15.0) -> bool:
    """Wait until the condition holds, for `limit` seconds at most; return whether it came to."""
    deadline = time.monotonic() + limit
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def gone(pid: int) -> bool:
    """Tell whether no process has the id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False
