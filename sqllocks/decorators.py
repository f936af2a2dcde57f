"""`@locked`: a function whose body runs under a lock."""

from __future__ import annotations

import functools
import inspect
import string
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

from sqllocks.errors import LockNotAcquired, LockValidationError
from sqllocks.model import Seconds
from sqllocks.policy import checked_ttl, checked_wait
from sqllocks.protocols import AsyncLockProvider, LockProvider

__all__ = ["locked"]

P = ParamSpec("P")
R = TypeVar("R")


def locked(
    provider: LockProvider | AsyncLockProvider,
    key: str,
    *,
    ttl: Seconds,
    wait: Seconds | None = 0,
    skip: bool = False,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Hold a lock around each call of the decorated function, coroutine function or method.

    ``key`` is a format template over the function's parameters: ``"invoice:{invoice_id}"``,
    ``"tenant:{self.tenant_id}"``. It is checked when decorating. ``ttl`` and ``wait`` are as in
    ``LockProvider.hold``; the lease is renewed while the function runs.

    Where the key is busy, the function does not run: ``LockNotAcquired`` or ``LockTimeout`` is raised,
    or with ``skip=True`` the call returns ``None``. After a loss the call raises ``LeaseLost``.

    Raises ``TypeError`` for a coroutine function with a blocking provider and the reverse, for
    generators, and ``LockValidationError`` for a template that names no parameter.
    """
    checked_ttl(ttl)
    checked_wait(wait)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        _check_form(provider, function)
        make_key = _key_maker(function, key)

        def block(*args: Any, **kwargs: Any) -> Any:
            return provider.hold(make_key(*args, **kwargs), ttl=ttl, wait=wait)

        make = _asynchronous if inspect.iscoroutinefunction(function) else _blocking
        return cast("Callable[P, R]", functools.wraps(function)(make(function, block, skip)))

    return decorate


def _check_form(provider: Any, function: Callable[..., Any]) -> None:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{_name(function)} is a generator, whose body runs after the call: use hold() in it")
    if inspect.iscoroutinefunction(function) != inspect.iscoroutinefunction(provider.acquire):
        is_coroutine = inspect.iscoroutinefunction(function)
        form = "a coroutine function: use an Async" if is_coroutine else "a plain function: use a blocking"
        raise TypeError(f"{_name(function)} is {form} provider for it")


def _blocking(function: Callable[..., Any], block: Callable[..., Any], skip: bool) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        held = block(*args, **kwargs)
        try:
            held.__enter__()
        except LockNotAcquired:
            if skip:
                return None
            raise
        with _Entered(held):
            return function(*args, **kwargs)

    return wrapper


def _asynchronous(function: Callable[..., Any], block: Callable[..., Any], skip: bool) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        held = block(*args, **kwargs)
        try:
            await held.__aenter__()
        except LockNotAcquired:
            if skip:
                return None
            raise
        async with _Entered(held):
            return await function(*args, **kwargs)

    return wrapper


class _Entered:
    """A block that was entered already, so that only entering it is guarded by the skip."""

    def __init__(self, block: Any) -> None:
        self._block = block

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: Any) -> Any:
        return self._block.__exit__(*error)

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, *error: Any) -> Any:
        return await self._block.__aexit__(*error)


def _key_maker(function: Callable[..., Any], template: Any) -> Callable[..., str]:
    """Return what makes the key of a call; raises ``LockValidationError`` for a wrong template."""
    signature = inspect.signature(function)
    details = {"argument": "key"}
    if not isinstance(template, str) or not template.strip():
        raise LockValidationError("the key template must be a text that is not blank", details=details)
    try:
        fields = [field for _, field, _, _ in string.Formatter().parse(template) if field is not None]
    except ValueError as error:
        raise LockValidationError(
            f"the key template {template!r} is wrong: {error}", details=details
        ) from error
    for field in fields:
        name = field.split(".")[0].split("[")[0]
        if name not in signature.parameters:
            known = ", ".join(signature.parameters) or "none"
            raise LockValidationError(
                f"the key template {template!r} names {name or 'a position'!r}, which is no parameter of "
                f"{_name(function)} (it has: {known})",
                details=details,
            )

    def make_key(*args: Any, **kwargs: Any) -> str:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return template.format_map(bound.arguments)

    return make_key


def _name(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__qualname__', repr(function))}()"
