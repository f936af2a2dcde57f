"""What is compared: ways to take a key and give it back, in blocking and in asyncio style."""

from __future__ import annotations

import asyncio
import queue
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

TTL = 30
CONNECTIONS = 16
"""Connections of those who need one for each operation or for each lock that is held."""
POLL = 0.01


class Family(StrEnum):
    """What a contender's locks are made of."""

    OWN = "sqllocks"
    SINGLE = "by hand, singly"
    BATCH = "by hand, batch loop"
    NOTHING = "SELECT 1"
    TABLE = "lock table"
    SESSION = "session lock"
    REDIS = "Redis"


OURS = (Family.OWN, Family.SINGLE, Family.BATCH, Family.NOTHING)


@dataclass(frozen=True)
class Place:
    """Where the contenders meet: a fresh database, and a Redis where there is one."""

    server: str
    url: str
    redis: str | None = None


class Contender:
    """One way to lock, opened for a number of callers."""

    def __init__(self, place: Place, callers: int) -> None:
        self.place = place
        self.callers = callers


class Blocking(Contender, ABC):
    """Callers are threads."""

    @abstractmethod
    def open(self) -> None: ...

    @abstractmethod
    def take(self, caller: int, key: str) -> Any:
        """Return what `give` wants, or something false where the key is held."""

    @abstractmethod
    def give(self, caller: int, key: str, taken: Any) -> None: ...

    def wait(self, caller: int, key: str) -> Any:
        """Wait until the key is free, and take it."""
        while not (taken := self.take(caller, key)):
            time.sleep(POLL)
        return taken

    @abstractmethod
    def close(self) -> None: ...


class Asyncio(Contender, ABC):
    """Callers are tasks of one event loop."""

    @abstractmethod
    async def open(self) -> None: ...

    @abstractmethod
    async def take(self, caller: int, key: str) -> Any:
        """Return what `give` wants, or something false where the key is held."""

    @abstractmethod
    async def give(self, caller: int, key: str, taken: Any) -> None: ...

    async def wait(self, caller: int, key: str) -> Any:
        """Wait until the key is free, and take it."""
        while not (taken := await self.take(caller, key)):  # noqa: ASYNC110  nobody tells
            await asyncio.sleep(POLL)
        return taken

    @abstractmethod
    async def close(self) -> None: ...


class BlockingLoop(Blocking):
    """One loop that serves all keys together; no caller waits for anybody else."""

    @abstractmethod
    def take_all(self, keys: Sequence[str]) -> list[Any]: ...

    @abstractmethod
    def give_all(self, keys: Sequence[str], taken: Sequence[Any]) -> None: ...

    def take(self, caller: int, key: str) -> Any:
        return self.take_all([key])[0]

    def give(self, caller: int, key: str, taken: Any) -> None:
        self.give_all([key], [taken])


class AsyncioLoop(Asyncio):
    """The same with an asyncio driver."""

    @abstractmethod
    async def take_all(self, keys: Sequence[str]) -> list[Any]: ...

    @abstractmethod
    async def give_all(self, keys: Sequence[str], taken: Sequence[Any]) -> None: ...

    async def take(self, caller: int, key: str) -> Any:
        return (await self.take_all([key]))[0]

    async def give(self, caller: int, key: str, taken: Any) -> None:
        await self.give_all([key], [taken])


@dataclass(frozen=True)
class Entry:
    """How a contender is made, and what the tables say of it."""

    name: str
    family: Family
    driver: str
    make: Callable[[Place, int], Blocking | Asyncio]
    most: int = 1 << 30
    """The most callers that it is asked to serve."""
    note: str = ""

    @property
    def form(self) -> str:
        """Return "asyncio" or "threads"."""
        made: Any = self.make
        return "asyncio" if isinstance(made, type) and issubclass(made, Asyncio) else "threads"

    @property
    def label(self) -> str:
        """Return what tells the entry from all others."""
        return f"{self.name}, {self.driver} {self.form}"


class Pool:
    """A few open connections, lent one by one to threads."""

    def __init__(self, connect: Callable[[], Any], size: int) -> None:
        self._all = [connect() for _ in range(size)]
        self._free: queue.LifoQueue[Any] = queue.LifoQueue()
        for each in self._all:
            self._free.put(each)

    def borrow(self) -> Any:
        return self._free.get()

    def back(self, connection: Any) -> None:
        self._free.put(connection)

    def close(self) -> None:
        for each in self._all:
            each.close()


class AsyncPool:
    """The same for tasks."""

    def __init__(self) -> None:
        self._all: list[Any] = []
        self._free: asyncio.LifoQueue[Any] = asyncio.LifoQueue()

    @classmethod
    async def of(cls, connect: Callable[[], Awaitable[Any]], size: int) -> AsyncPool:
        """Open that many connections."""
        pool = cls()
        for _ in range(size):
            pool._all.append(await connect())
            pool._free.put_nowait(pool._all[-1])
        return pool

    async def borrow(self) -> Any:
        return await self._free.get()

    def back(self, connection: Any) -> None:
        self._free.put_nowait(connection)

    async def close(self) -> None:
        for each in self._all:
            closed = each.close()
            if closed is not None:  # aiomysql's does not wait
                await closed


def connections_for(callers: int) -> int:
    """Return how many connections a contender opens that needs several."""
    return min(callers, CONNECTIONS)
