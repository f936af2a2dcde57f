"""The dependency that holds a lock, and lock errors as HTTP answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Depends, FastAPI

from sqllocks import AsyncLease, AsyncMemoryLockProvider, BackendUnavailable, SchemaMissing
from sqllocks.contrib.fastapi import LOCK_ERRORS, held, lock_lifespan

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def client_of(locks: AsyncMemoryLockProvider, **routes: Any) -> AsyncIterator[httpx.AsyncClient]:
    """Open an application with these endpoints, and a client of it."""
    app = FastAPI(lifespan=lock_lifespan(locks), exception_handlers=LOCK_ERRORS)
    for name, endpoint in routes.items():
        app.post(f"/{name}/{{order_id}}")(endpoint)
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://test") as client,
    ):
        yield client


OrderLock = Annotated[AsyncLease, Depends(held("order:{order_id}", ttl=30))]


async def test_an_endpoint_holds_its_lock_while_it_runs_and_a_second_is_told_409() -> None:
    inside, leave = asyncio.Event(), asyncio.Event()

    async def pay(order_id: int, lease: OrderLock) -> dict[str, Any]:
        inside.set()
        await leave.wait()
        return {"key": lease.lock_key}

    locks = AsyncMemoryLockProvider()
    async with client_of(locks, pay=pay) as client:
        first = asyncio.ensure_future(client.post("/pay/17"))
        await asyncio.wait_for(inside.wait(), 5)
        refused = await client.post("/pay/17")
        assert refused.status_code == 409
        assert refused.json() == {"code": "LOCK_NOT_ACQUIRED", "details": {"lock_key": "order:17"}}
        assert 1 <= int(refused.headers["Retry-After"]) <= 30
        leave.set()
        assert (await first).json() == {"key": "order:17"}
        assert (await client.post("/pay/17")).status_code == 200
        assert await locks.locked("order:17") is False


async def test_a_lost_lease_cancels_the_endpoint_and_is_told() -> None:
    inside, cancelled = asyncio.Event(), asyncio.Event()
    brief = Annotated[AsyncLease, Depends(held("order:{order_id}", ttl=0.6))]

    async def pay(order_id: int, lease: brief) -> None:
        inside.set()
        try:
            await asyncio.sleep(30)
        finally:
            cancelled.set()

    # FastAPI reads the annotation by its name, which is local here
    pay.__annotations__["lease"] = brief
    pay.__annotations__["order_id"] = int
    locks = AsyncMemoryLockProvider()
    async with client_of(locks, pay=pay) as client:
        answer = asyncio.ensure_future(client.post("/pay/17"))
        await asyncio.wait_for(inside.wait(), 5)
        assert await locks.break_lock("order:17")
        lost = await asyncio.wait_for(answer, 10)
        assert (lost.status_code, lost.json()["code"]) == (409, "LOCK_LOST")
        assert cancelled.is_set()


@pytest.mark.parametrize(
    ("error", "status"), [(BackendUnavailable("no answer from db.internal"), 503), (SchemaMissing("no"), 500)]
)
async def test_other_errors_have_their_status_and_keep_their_message_in_the_log(
    error: Exception, status: int
) -> None:
    async def fail(order_id: int) -> None:
        raise error

    async with client_of(AsyncMemoryLockProvider(), fail=fail) as client:
        answer = await client.post("/fail/1")
    assert answer.status_code == status
    assert answer.json() == {"code": error.code, "details": {}}  # type: ignore[attr-defined]
    assert "Retry-After" not in answer.headers
