"""What a dialect offers for locks that belong to a session of the server, beside the row of their key.

A session lock is the server-side lock *and* the row, both taken on the same session. The row says which
server-side lock goes with it, on which incarnation of the server (``server_lock``): whoever holds that
very lock there knows that the row's holder is gone, and may take the row before its expiry.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text

from sqllocks.dialects.base import Parameters, Result, Row, Statement, Want
from sqllocks.naming import LockNames

__all__ = ["Server", "SessionStatements"]


@dataclass(frozen=True, slots=True)
class Server:
    """The server that a session speaks with, as the session sees it."""

    session: int
    """The number of this very session."""
    incarnation: str
    """Differs between two servers, and between two starts of one."""
    refusal: str = ""
    """Why locks of its sessions exclude nobody; empty where they do."""
    remedy: str = ""
    database: str = ""
    """What names are told apart by where they are one space for the whole server."""
    client: tuple[str, int] | None = None
    """Address and port of this end of the connection, as the server sees them."""
    most_locks: int | None = None
    """Locks beyond which this locker would endanger the whole server."""


class SessionStatements(ABC):
    """Beside the statements on rows, whose grants here are of the kind ``session``."""

    take: Statement
    """Tries for server-side locks without waiting; answers with each name and whether it was got."""
    unlock: Statement
    """Gives server-side locks back; answers with each name and whether this session held it."""
    beat: Statement
    """Answers with the names that this very session holds."""
    unlocks_with_release: bool
    """A release gives the server-side lock back in the same statement, before its row can be seen free."""
    identity: Statement
    """Asks for what ``server`` needs."""

    begin = Statement("begin", text("BEGIN"), rows=False)
    rollback = Statement("rollback", text("ROLLBACK"), rows=False)

    @abstractmethod
    def test(self, want: Want) -> Want:
        """Return a want for a server-side lock that nobody else asks for."""

    @abstractmethod
    def names(self, key: str, naming: LockNames, server: Server) -> tuple[int | str, str]:
        """Return the server-side name of a key, and what its row has in ``server_lock``."""

    @abstractmethod
    def server(self, row: Row) -> Server:
        """Return what the answer to ``identity`` says."""

    @abstractmethod
    def settings(self, lease: float, heartbeat: float) -> Sequence[tuple[str, str]]:
        """Return what the session is told so that the server ends it, each with what it is for."""

    @staticmethod
    @abstractmethod
    def enforced(lease: float) -> float:
        """Return the seconds of silence after which the server ends the session."""

    @abstractmethod
    def unlocked(self, result: Result) -> Mapping[str, bool]:
        """Return, for each key of a release that unlocks, whether its lock was held."""

    @abstractmethod
    def named(self, wants: Sequence[Want]) -> Parameters:
        """Return the parameters of ``take``, ``unlock`` and ``beat``."""


def as_held(value: Any) -> bool:
    """Return whether an answer of three values says yes: 1 or true; 0, false and NULL do not."""
    return value is not None and bool(value)
