"""Both forms behind one: written once as coroutines, which the blocking form runs without suspending."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import NullPool, create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from sqllocks import AsyncSqlLockProvider, SqlLockProvider
from tests.chaos.ledger import counters, writes

CLOSE_LIMIT = 3.0


async def settled(value: Any) -> Any:
    """Return what a call of either form gives."""
    return await value if inspect.isawaitable(value) else value


@asynccontextmanager
async def entered(block: Any) -> AsyncIterator[Any]:
    """Enter a context manager of either form."""
    if hasattr(block, "__aenter__"):
        async with block as value:
            yield value
    else:
        with block as value:
            yield value


class Application:
    """A program that uses the library and writes to its own tables, in one of the two forms."""

    def __init__(self, address: str, *, asyncio_form: bool, holder: str) -> None:
        self._asyncio = asyncio_form
        form = AsyncSqlLockProvider if asyncio_form else SqlLockProvider
        self.locks: Any = form(address, holder=holder)
        make: Any = create_async_engine if asyncio_form else create_engine
        # a connection for each transaction: what a fault broke is not met again
        self._engine = make(address, poolclass=NullPool)

    async def sleep(self, seconds: float) -> None:
        """Let time go by."""
        await settled((asyncio.sleep if self._asyncio else time.sleep)(seconds))

    async def count(self, key: str, token: int, worker: str, *, guard: Any, pause: float) -> int:
        """Count one up in a transaction that ``guard`` proves first; return the counter's new value."""
        async with entered(self._engine.begin()) as connection:
            await guard(connection)
            chosen = counters.c.lock_key == key
            found = await settled(connection.execute(counters.select().where(chosen)))
            number = int(found.one().number) + 1
            await self.sleep(pause)
            await settled(connection.execute(counters.update().where(chosen).values(number=number)))
            row = {"lock_key": key, "number": number, "token": token, "worker": worker}
            await settled(connection.execute(writes.insert().values(row)))
        return number

    async def close(self) -> None:
        """Give back what is held and close every connection."""
        if self._asyncio:
            await self.locks.aclose(timeout=CLOSE_LIMIT)
        else:
            self.locks.close(timeout=CLOSE_LIMIT)
        await settled(self._engine.dispose())
