"""Connections that stay open between calls: what both forms share."""

from __future__ import annotations

import os
from typing import Any, Generic, Protocol, TypeVar

from sqllocks.runtime import clock

__all__ = ["MAX_IDLE", "KeptSession", "Shelf"]

MAX_IDLE = 30.0
"""Seconds after which an idle connection is replaced: a firewall or server may have dropped it."""


class KeptSession(Protocol):
    """A session that may be put on the shelf."""

    used_at: float


S = TypeVar("S", bound=KeptSession)

# Connections that a parent process opened. They are kept, never closed nor collected: closing one in
# the child would say goodbye to the server in the parent's name.
_INHERITED: list[Any] = []


class Shelf(Generic[S]):
    """Idle sessions of this process, the last one used first; a forked child starts empty."""

    def __init__(self) -> None:
        self._idle: list[S] = []
        self._pid = os.getpid()

    def forked(self) -> bool:
        """Return whether this is another process than before, and forget the parent's sessions."""
        if self._pid == os.getpid():
            return False
        _INHERITED.append(self._idle)
        self._idle = []
        self._pid = os.getpid()
        return True

    def take(self) -> tuple[S | None, list[S]]:
        """Return a session to use, and those that idled too long and are to be closed."""
        stale = [session for session in self._idle if clock.now() - session.used_at > MAX_IDLE]
        self._idle = [session for session in self._idle if session not in stale]
        return (self._idle.pop() if self._idle else None), stale

    def put(self, session: S) -> None:
        """Keep an idle session."""
        session.used_at = clock.now()
        self._idle.append(session)

    def empty(self) -> list[S]:
        """Take all idle sessions."""
        idle, self._idle = self._idle, []
        return idle
