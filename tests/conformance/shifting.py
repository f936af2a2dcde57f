"""Set this process's idea of the time apart from everybody else's."""

from __future__ import annotations

import datetime as module
import sys
import time
from typing import Any

_real = module.datetime


class _Kind(type):
    """Lets real instants count as instances of the shifted class."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, _real)


def shift(seconds: float) -> None:
    """Move the wall clock of this process by that many seconds, for everything that reads it."""
    ahead = module.timedelta(seconds=seconds)
    true_time, true_time_ns = time.time, time.time_ns

    class Shifted(_real, metaclass=_Kind):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return _real.now(tz) + ahead

        @classmethod
        def utcnow(cls) -> Any:
            return _real.now(module.UTC).replace(tzinfo=None) + ahead

    time.time = lambda: true_time() + seconds
    time.time_ns = lambda: true_time_ns() + round(seconds * 1_000_000_000)
    for name, loaded in list(sys.modules.items()):
        if name.split(".")[0] == "sqllocks" and getattr(loaded, "datetime", None) is _real:
            loaded.datetime = Shifted  # type: ignore[attr-defined]
        for attribute, true in (("time", true_time), ("time_ns", true_time_ns)):
            if name.split(".")[0] == "sqllocks" and getattr(loaded, attribute, None) is true:
                setattr(loaded, attribute, getattr(time, attribute))
