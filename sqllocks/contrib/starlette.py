"""Locks in a Starlette application: opened and closed with it, and lock errors as HTTP answers.

    locks = AsyncSqlLockProvider(engine, namespace="shop:")

    async def pay(request):
        async with locks.hold(f"order:{request.path_params['id']}", ttl=30):
            ...

    app = Starlette(routes=[...], lifespan=lock_lifespan(locks), exception_handlers=LOCK_ERRORS)

A busy key is answered with 409, ``{"code": "LOCK_NOT_ACQUIRED", "details": {"lock_key": "order:17"}}`` and a
``Retry-After`` that ends when the holder's lease would; other lock errors with their ``status`` and code. The
messages, which name hosts and processes, stay in the log.
"""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sqllocks.errors import LockError, LockNotAcquired
from sqllocks.protocols import AsyncLockProvider

__all__ = ["LOCK_ERRORS", "lock_error_response", "lock_lifespan", "provider_of"]

logger = logging.getLogger("sqllocks")


def lock_lifespan(locks: AsyncLockProvider) -> Callable[[Starlette], AbstractAsyncContextManager[None]]:
    """Return a lifespan: the provider is at ``app.state.locks`` meanwhile, and closed with the application.

    Its ``aclose`` gives back what requests in flight still hold after its timeout.
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        async with locks:
            app.state.locks = locks
            yield

    return lifespan


def provider_of(request: Request) -> AsyncLockProvider:
    """Return the provider of the application's lifespan."""
    locks: AsyncLockProvider = request.app.state.locks
    return locks


async def lock_error_response(request: Request, error: Exception) -> Response:
    """Return the HTTP answer for a ``LockError``: its status, code and details."""
    assert isinstance(error, LockError)
    busy = isinstance(error, LockNotAcquired)
    logger.log(logging.INFO if busy else logging.ERROR, "%s %s: %s", request.method, request.url.path, error)
    headers = await _retry_after(request, error) if busy else {}
    return JSONResponse({"code": error.code, "details": error.details}, error.status, headers)


LOCK_ERRORS: dict[Any, Callable[[Request, Any], Coroutine[Any, Any, Response]]] = {
    LockError: lock_error_response
}
"""For ``exception_handlers`` of an application."""


async def _retry_after(request: Request, error: LockError) -> dict[str, str]:
    """Tell when the holder's lease ends if it is not renewed; nothing where that is not known."""
    locks, key = getattr(request.app.state, "locks", None), error.details.get("lock_key")
    if locks is None or key is None:
        return {}
    try:
        info = await locks.inspect(key)
    except LockError:
        return {}
    if info is None or info.expires_at is None:
        return {}
    left = (info.expires_at - datetime.now(UTC)).total_seconds()
    return {"Retry-After": str(max(math.ceil(left), 1))}
