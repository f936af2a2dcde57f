"""Pins of all providers in this process, for guards that do not know whose lease they prove."""

from __future__ import annotations

import threading
from weakref import WeakSet

from sqllocks.core.guard import Ending, Pins

__all__ = ["EVERYONE", "Everyone"]


class Everyone(Pins):
    """Tells each one that joined; an owner token is random, so each knows its own."""

    def __init__(self) -> None:
        self._joined: WeakSet[Pins] = WeakSet()
        self._mutex = threading.Lock()

    def join(self, pins: Pins) -> None:
        """Tell ``pins`` from now on, for as long as it lives."""
        with self._mutex:
            self._joined.add(pins)

    def pinned(self, key: str, owner: str, token: int) -> None:
        for pins in self._all():
            pins.pinned(key, owner, token)

    def unpinned(self, key: str, owner: str, token: int, ending: Ending) -> None:
        for pins in self._all():
            pins.unpinned(key, owner, token, ending)

    def _all(self) -> list[Pins]:
        with self._mutex:
            return list(self._joined)


EVERYONE = Everyone()
