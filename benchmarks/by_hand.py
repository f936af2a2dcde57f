"""The floors: a driver that does the same statements by hand, and ``SELECT 1``."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks import drivers
from benchmarks.contenders import (
    Asyncio,
    AsyncioLoop,
    AsyncPool,
    Blocking,
    BlockingLoop,
    Entry,
    Family,
    Pool,
    connections_for,
)
from benchmarks.drivers import AsyncDriver, Driver
from benchmarks.hand_sql import hand_for


class Singly(Blocking):
    """Two statements for each lock; a few connections, one where there is one caller."""

    driver: Driver

    def open(self) -> None:
        self.hand = hand_for(self.place.server, self.driver.style)
        self.pool = Pool(lambda: self.driver.connect(self.place), connections_for(self.callers))
        self._run(self.hand.create, ())

    def _run(self, sql: str, values: Sequence[Any]) -> drivers.Told:
        connection = self.pool.borrow()
        try:
            return self.driver.run(connection, sql, values)
        finally:
            self.pool.back(connection)

    def take(self, caller: int, key: str) -> str | None:
        owner = uuid.uuid4().hex
        return owner if self.hand.won(*self._run(*self.hand.take(key, owner))) else None

    def give(self, caller: int, key: str, taken: Any) -> None:
        if self._run(*self.hand.give(key, taken))[1] == 0:
            raise RuntimeError(f"{key} was not ours any more")

    def close(self) -> None:
        self.pool.close()


class SelectOne(Singly):
    """``SELECT 1`` in the place of a whole cycle."""

    def open(self) -> None:
        self.pool = Pool(lambda: self.driver.connect(self.place), connections_for(self.callers))

    def take(self, caller: int, key: str) -> Any:
        return self._run("SELECT 1", ())[0]

    def give(self, caller: int, key: str, taken: Any) -> None:
        pass


class Loop(BlockingLoop):
    """One connection, and all keys in one statement."""

    driver: Driver

    def open(self) -> None:
        self.hand = hand_for(self.place.server, self.driver.style)
        self.connection = self.driver.connect(self.place)
        self.driver.run(self.connection, self.hand.create, ())

    def take_all(self, keys: Sequence[str]) -> list[str | None]:
        owners = [uuid.uuid4().hex for _ in keys]
        rows: Sequence[Any] = ()
        for said in self.hand.take_all(keys, owners):
            rows, _ = self.driver.run(self.connection, *said)
        return self.hand.winners(rows, keys, owners)

    def give_all(self, keys: Sequence[str], taken: Sequence[Any]) -> None:
        _, count = self.driver.run(self.connection, *self.hand.give_all(keys, taken))
        if count not in (-1, len(keys)):
            raise RuntimeError(f"{len(keys) - count} keys were not ours any more")

    def close(self) -> None:
        self.connection.close()


class AsyncSingly(Asyncio):
    """As `Singly`."""

    driver: AsyncDriver

    async def open(self) -> None:
        self.hand = hand_for(self.place.server, self.driver.style)
        self.pool = await AsyncPool.of(lambda: self.driver.connect(self.place), connections_for(self.callers))
        await self._run(self.hand.create, ())

    async def _run(self, sql: str, values: Sequence[Any]) -> drivers.Told:
        connection = await self.pool.borrow()
        try:
            return await self.driver.run(connection, sql, values)
        finally:
            self.pool.back(connection)

    async def take(self, caller: int, key: str) -> Any:
        owner = uuid.uuid4().hex
        return owner if self.hand.won(*await self._run(*self.hand.take(key, owner))) else None

    async def give(self, caller: int, key: str, taken: Any) -> None:
        if (await self._run(*self.hand.give(key, taken)))[1] == 0:
            raise RuntimeError(f"{key} was not ours any more")

    async def close(self) -> None:
        await self.pool.close()


class AsyncSelectOne(AsyncSingly):
    """As `SelectOne`."""

    async def open(self) -> None:
        self.pool = await AsyncPool.of(lambda: self.driver.connect(self.place), connections_for(self.callers))

    async def take(self, caller: int, key: str) -> Any:
        return (await self._run("SELECT 1", ()))[0]

    async def give(self, caller: int, key: str, taken: Any) -> None:
        pass


class AsyncLoop(AsyncioLoop):
    """As `Loop`."""

    driver: AsyncDriver

    async def open(self) -> None:
        self.hand = hand_for(self.place.server, self.driver.style)
        self.connection = await self.driver.connect(self.place)
        await self.driver.run(self.connection, self.hand.create, ())

    async def take_all(self, keys: Sequence[str]) -> list[str | None]:
        owners = [uuid.uuid4().hex for _ in keys]
        rows: Sequence[Any] = ()
        for said in self.hand.take_all(keys, owners):
            rows, _ = await self.driver.run(self.connection, *said)
        return self.hand.winners(rows, keys, owners)

    async def give_all(self, keys: Sequence[str], taken: Sequence[Any]) -> None:
        _, count = await self.driver.run(self.connection, *self.hand.give_all(keys, taken))
        if count not in (-1, len(keys)):
            raise RuntimeError(f"{len(keys) - count} keys were not ours any more")

    async def close(self) -> None:
        closed = self.connection.close()
        if closed is not None:
            await closed


_KINDS: Sequence[tuple[Family, type[Any], type[Any]]] = (
    (Family.SINGLE, Singly, AsyncSingly),
    (Family.BATCH, Loop, AsyncLoop),
    (Family.NOTHING, SelectOne, AsyncSelectOne),
)


def entries(server: str) -> list[Entry]:
    """Return the floors of each driver of a server."""
    made = []
    for family, blocking, awaited in _KINDS:
        made += [Entry(family, family, each.name, _with(blocking, each)) for each in drivers.BLOCKING[server]]
        made += [Entry(family, family, each.name, _with(awaited, each)) for each in drivers.ASYNCIO[server]]
    return made


def _with(kind: type[Any], driver: Any) -> Callable[..., Any]:
    return type(f"{kind.__name__}_{driver.name}", (kind,), {"driver": driver})
