"""A web application on several instances in which one order is paid once, however often it is asked for.

    DATABASE_URL=postgresql+asyncpg://… uvicorn examples.starlette_app:app --port 8001
    DATABASE_URL=postgresql+asyncpg://… uvicorn examples.starlette_app:app --port 8002
    curl -i -X POST localhost:8001/orders/17/pay; curl -i -X POST localhost:8002/orders/17/pay

The first is answered with 201, the second with 409, the code of the lock error and `Retry-After`: `at_least`
keeps the key taken for a window of idempotency after each grant, whatever instance is asked. Without
DATABASE_URL it uses a SQLite file in the present directory.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy import Column, Integer, MetaData, String, Table, insert
from sqlalchemy.ext.asyncio import create_async_engine
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from sqllocks import AsyncSqlLockProvider
from sqllocks.contrib.starlette import LOCK_ERRORS, lock_lifespan

WINDOW = float(os.environ.get("WINDOW", "10"))
engine = create_async_engine(os.environ.get("DATABASE_URL", "sqlite+aiosqlite:///shop.sqlite3"))
locks = AsyncSqlLockProvider(engine, namespace="shop:")
metadata = MetaData()
payments = Table(
    "payments",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("order_id", String(40), nullable=False),
)


async def pay(request: Request) -> JSONResponse:
    """Pay an order, unless somebody does or just did."""
    order = request.path_params["order"]
    async with (
        locks.hold(f"order:{order}", ttl=WINDOW, at_least=WINDOW) as lease,
        engine.begin() as connection,
    ):
        await lease.guard(connection)
        await connection.execute(insert(payments).values(order_id=order))
    return JSONResponse({"paid": order, "token": lease.fencing_token}, 201)


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    """Make the tables, and close the locks with the application."""
    async with lock_lifespan(locks)(app):
        await locks.create_table()
        async with engine.begin() as connection:
            await connection.run_sync(metadata.create_all)
        yield
    await engine.dispose()


app = Starlette(
    routes=[Route("/orders/{order}/pay", pay, methods=["POST"])],
    lifespan=lifespan,
    exception_handlers=LOCK_ERRORS,
)
