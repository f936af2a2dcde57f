"""Locks in a FastAPI application: a dependency that holds one while the request is handled.

    app = FastAPI(lifespan=lock_lifespan(locks), exception_handlers=LOCK_ERRORS)
    OrderLock = Annotated[AsyncLease, Depends(held("order:{order_id}", ttl=30))]

    @app.post("/orders/{order_id}/pay")
    async def pay(order_id: int, lease: OrderLock) -> None:
        ...

The lifespan and the answers to lock errors are those of ``sqllocks.contrib.starlette``. FastAPI gives a
dependency back after the answer was sent; with ``Depends(…, scope="function")`` before it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable

from fastapi import Request

from sqllocks.contrib.starlette import LOCK_ERRORS, lock_error_response, lock_lifespan, provider_of
from sqllocks.lease import AsyncLease
from sqllocks.model import Seconds

__all__ = ["LOCK_ERRORS", "held", "lock_error_response", "lock_lifespan"]


def held(
    key: str, *, ttl: Seconds, wait: Seconds | None = 0, at_least: Seconds = 0
) -> Callable[[Request], AsyncGenerator[AsyncLease]]:
    """Return a dependency that holds a lock and gives its lease to the endpoint.

    ``key`` is a format template over the path's parameters; the rest is as in ``AsyncLockProvider.hold``.
    A lost lease cancels the endpoint, and the answer is 409 with ``LOCK_LOST``.
    """

    async def lease(request: Request) -> AsyncGenerator[AsyncLease]:
        name = key.format_map(request.path_params)
        async with provider_of(request).hold(name, ttl=ttl, wait=wait, at_least=at_least) as given:
            yield given

    return lease
