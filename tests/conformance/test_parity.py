"""The blocking and the asyncio form are one thing, and the public names are there."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import sqllocks
from sqllocks import (
    AsyncLockProvider,
    AsyncMemoryLockProvider,
    AsyncSqlLockProvider,
    LockProvider,
    MemoryLockProvider,
    SqlLockProvider,
)

NAMES = [
    "AsyncLockProvider",
    "AsyncMemoryLockProvider",
    "AsyncSqlLockProvider",
    "BackendUnavailable",
    "BackendUnsupported",
    "LeaseLost",
    "LockError",
    "LockHandle",
    "LockInfo",
    "LockNotAcquired",
    "LockProvider",
    "LockTimeout",
    "LockValidationError",
    "MemoryLockProvider",
    "SchemaMissing",
    "SqlLockProvider",
    "StaleFencingToken",
    "TransactionConflict",
]
PAIRS: list[tuple[type, type]] = [
    (SqlLockProvider, AsyncSqlLockProvider),
    (MemoryLockProvider, AsyncMemoryLockProvider),
    (LockProvider, AsyncLockProvider),
]
BLOCKING = [SqlLockProvider, MemoryLockProvider]
ASYNCIO = [AsyncSqlLockProvider, AsyncMemoryLockProvider]
METHODS = [
    "acquire",
    "require_acquire",
    "release",
    "extend",
    "locked",
    "inspect",
    "list_locks",
    "break_lock",
]
ARGUMENTS: dict[str, list[tuple[str, Any, Any]]] = {
    "acquire": [("lock_key", "P", None), ("ttl", "K", None), ("owner_token", "K", "None")],
    "require_acquire": [
        ("lock_key", "P", None),
        ("ttl", "K", None),
        ("owner_token", "K", "None"),
        ("wait", "K", "0"),
    ],
    "release": [("lock_key", "P", None), ("owner_token", "K", None)],
    "extend": [("lock_key", "P", None), ("owner_token", "K", None), ("ttl", "K", None)],
    "locked": [("lock_key", "P", None)],
    "inspect": [("lock_key", "P", None)],
    "list_locks": [("prefix", "K", "''")],
    "break_lock": [("lock_key", "P", None)],
}


def asynchronous(name: str) -> str:
    """Return what a method of the blocking form is called in the asyncio form."""
    return {"close": "aclose", "__enter__": "__aenter__", "__exit__": "__aexit__"}.get(name, name)


def methods(form: type) -> dict[str, Callable[..., Any]]:
    """Return the public methods of a form, and those of its context manager."""
    return {
        name: member
        for name, member in inspect.getmembers(form, callable)
        if not name.startswith("_") or name in {"__enter__", "__exit__", "__aenter__", "__aexit__"}
    }


def blocking_name(annotation: Any) -> str:
    """Return what a type is called in the blocking form."""
    return str(annotation).replace("Async", "").replace("async_", "")


def arguments(method: Callable[..., Any]) -> list[tuple[str, Any, Any, Any]]:
    """Return name, kind, default and annotation of each argument."""
    return [
        (each.name, each.kind, each.default, blocking_name(each.annotation))
        for each in inspect.signature(method).parameters.values()
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_public(name: str) -> None:
    assert hasattr(sqllocks, name)
    assert name in sqllocks.__all__
    assert inspect.getdoc(getattr(sqllocks, name))


def test_every_public_name_is_there() -> None:
    assert len(set(sqllocks.__all__)) == len(sqllocks.__all__)
    for name in sqllocks.__all__:
        assert hasattr(sqllocks, name)


@pytest.mark.parametrize(("blocking", "asyncio"), PAIRS)
def test_both_forms_have_the_same_methods(blocking: type, asyncio: type) -> None:
    assert {asynchronous(name) for name in methods(blocking)} == set(methods(asyncio))
    public = {name for name in dir(blocking) if not name.startswith("_")} - {"close"}
    assert public == {name for name in dir(asyncio) if not name.startswith("_")} - {"aclose"}


@pytest.mark.parametrize(("blocking", "asyncio"), PAIRS)
def test_both_forms_have_the_same_arguments(blocking: type, asyncio: type) -> None:
    for name, method in methods(blocking).items():
        other = methods(asyncio)[asynchronous(name)]
        assert arguments(method) == arguments(other), name
        if not name.startswith("_"):
            returned = [inspect.signature(each).return_annotation for each in (method, other)]
            assert blocking_name(returned[0]) == blocking_name(returned[1]), name


@pytest.mark.parametrize(("blocking", "asyncio"), PAIRS)
def test_both_forms_have_the_same_docstrings(blocking: type, asyncio: type) -> None:
    for name, method in methods(blocking).items():
        if not name.startswith("_"):
            text = inspect.getdoc(method)
            assert text, name
            assert text == inspect.getdoc(methods(asyncio)[asynchronous(name)]), name


@pytest.mark.parametrize(("blocking", "asyncio"), PAIRS[:2])
def test_both_forms_are_made_with_the_same_arguments(blocking: type, asyncio: type) -> None:
    made, other = (inspect.signature(form).parameters.values() for form in (blocking, asyncio))
    assert [(each.name, each.kind, each.default) for each in made] == [
        (each.name, each.kind, each.default) for each in other
    ]


def test_the_table_providers_are_made_as_documented() -> None:
    for form in (SqlLockProvider, AsyncSqlLockProvider):
        made = inspect.signature(form).parameters
        assert next(iter(made)) == "bind"
        assert made["bind"].default is inspect.Parameter.empty
        defaults = {name: each.default for name, each in made.items() if name != "bind"}
        assert {
            "namespace": "",
            "holder": None,
            "table": "core_locks",
            "schema": None,
        }.items() <= defaults.items()
        kinds = {each.kind for name, each in made.items() if name != "bind"}
        assert kinds == {inspect.Parameter.KEYWORD_ONLY}


def test_the_memory_providers_are_made_as_documented() -> None:
    for form in (MemoryLockProvider, AsyncMemoryLockProvider):
        (clock,) = inspect.signature(form).parameters.values()
        assert (clock.name, clock.kind, clock.default) == ("clock", inspect.Parameter.KEYWORD_ONLY, None)


@pytest.mark.parametrize("form", [form for pair in PAIRS for form in pair])
@pytest.mark.parametrize("name", METHODS)
def test_a_method_takes_the_documented_arguments(form: type, name: str) -> None:
    seen = []
    for each in list(inspect.signature(getattr(form, name)).parameters.values())[1:]:
        kind = "K" if each.kind is inspect.Parameter.KEYWORD_ONLY else "P"
        default = None if each.default is inspect.Parameter.empty else repr(each.default)
        seen.append((each.name, kind, default))
    assert seen == ARGUMENTS[name]


@pytest.mark.parametrize("form", BLOCKING)
def test_nothing_in_the_blocking_form_is_a_coroutine(form: type) -> None:
    for name, method in methods(form).items():
        assert not inspect.iscoroutinefunction(method), name


@pytest.mark.parametrize("form", ASYNCIO)
def test_what_may_touch_the_database_is_a_coroutine(form: type) -> None:
    for name in [*METHODS, "create_table", "aclose", "__aenter__", "__aexit__"]:
        if hasattr(form, name):
            assert inspect.iscoroutinefunction(getattr(form, name)), name
    for name in [*METHODS, "aclose", "__aenter__", "__aexit__"]:
        assert hasattr(form, name), name


def test_every_provider_satisfies_its_protocol() -> None:
    assert isinstance(MemoryLockProvider(), LockProvider)
    assert isinstance(AsyncMemoryLockProvider(), AsyncLockProvider)
    blocking = SqlLockProvider("sqlite:////nonexistent/locks.db")
    assert isinstance(blocking, LockProvider)
    blocking.close()
    assert isinstance(AsyncSqlLockProvider("sqlite+aiosqlite:////nonexistent/locks.db"), AsyncLockProvider)
    assert not isinstance(object(), LockProvider)
    assert not isinstance(object(), AsyncLockProvider)
