"""Listening through psycopg: the protocol's own calls, so that every wait has an end.

``psycopg.Connection`` itself would wait for an answer without limit. Its ``pgconn`` is public, and
does the same work in both forms; only how to wait for the socket differs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from sqllocks.dialects.postgresql_waiting import BACKEND, LISTEN
from sqllocks.runtime import clock
from sqllocks.runtime.wakeup import ANSWER_PATIENCE

__all__ = ["PsycopgTalk"]

_COMMAND_OK, _TUPLES_OK = 1, 2  # libpq's ExecStatusType


class PsycopgTalk(ABC):
    """Statements and notifications of one psycopg connection, whose work is done by one thread or task."""

    def __init__(self) -> None:
        self._pgconn: Any = None  # psycopg is an optional dependency
        self._payloads: list[str] = []

    async def begin(self, driver: Any) -> bool:
        """Listen on this connection of the driver, unless a pooler is in between."""
        self._pgconn = driver.pgconn
        # what the server said at the start is a pooler's where there is one
        if await self.run(BACKEND) != [driver.info.backend_pid]:
            return False
        await self.run(LISTEN)
        return True

    async def run(self, sql: str) -> list[int]:
        """Run a statement; return the first column. Raises ``TimeoutError`` where no answer comes."""
        until = clock.now() + ANSWER_PATIENCE
        pgconn = self._pgconn
        pgconn.send_query(sql.encode())
        while pgconn.flush():
            await self._until_moved(until, writing=True)
        values: list[int] = []
        while True:
            while pgconn.is_busy():
                await self._until_moved(until)
                self._read()
            result = pgconn.get_result()
            if result is None:
                return values
            if result.status not in (_COMMAND_OK, _TUPLES_OK):
                raise OSError(result.error_message.decode(errors="replace").strip())
            values += [int(result.get_value(row, 0)) for row in range(result.ntuples)]

    def arrived(self) -> list[str]:
        """Take the payloads that arrived."""
        payloads, self._payloads = self._payloads, []
        return payloads

    @abstractmethod
    async def _moved(self, seconds: float, *, writing: bool) -> None:
        """Wait until the socket can be read or written, or the time is over."""

    async def _until_moved(self, until: float, *, writing: bool = False) -> None:
        left = until - clock.now()
        if left <= 0:
            raise TimeoutError(f"no answer within {ANSWER_PATIENCE:g} s")
        await self._moved(left, writing=writing)

    def _read(self) -> None:
        """Take in what the socket has, without waiting; raises where the connection is gone."""
        self._pgconn.consume_input()
        while (notify := self._pgconn.notifies()) is not None:
            self._payloads.append(notify.extra.decode(errors="replace"))
