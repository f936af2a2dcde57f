"""The lock of a request as a FastAPI dependency.

    DATABASE_URL=postgresql+asyncpg://… uvicorn examples.fastapi_app:app
    curl -i -X POST localhost:8000/orders/17/pay

While one request works on an order, others for it are answered with 409, on all instances.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI
from sqlalchemy.ext.asyncio import create_async_engine

from sqllocks import AsyncLease, AsyncSqlLockProvider
from sqllocks.contrib.fastapi import LOCK_ERRORS, held, lock_lifespan

engine = create_async_engine(os.environ.get("DATABASE_URL", "sqlite+aiosqlite:///shop.sqlite3"))
locks = AsyncSqlLockProvider(engine, namespace="shop:")
OrderLock = Annotated[AsyncLease, Depends(held("order:{order_id}", ttl=30))]


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Make the lock table, and close the locks with the application."""
    async with lock_lifespan(locks)(app):
        await locks.create_table()
        yield
    await engine.dispose()


app = FastAPI(lifespan=lifespan, exception_handlers=LOCK_ERRORS)


@app.post("/orders/{order_id}/pay")
async def pay(order_id: int, lease: OrderLock) -> dict[str, int]:
    """Work on an order for a second."""
    await asyncio.sleep(float(os.environ.get("SECONDS", "1")))
    return {"paid": order_id, "token": lease.fencing_token}
