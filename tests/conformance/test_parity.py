"""The blocking and the asyncio form are one thing, and the public names are there."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import sqllocks
from sqllocks import (
    AsyncElector,
    AsyncLease,
    AsyncLocker,
    AsyncLockProvider,
    AsyncMemoryElector,
    AsyncMemoryLocker,
    AsyncMemoryLockProvider,
    AsyncSessionLock,
    AsyncSqlElector,
    AsyncSqlLocker,
    AsyncSqlLockProvider,
    AsyncTerm,
    Elector,
    Lease,
    Locker,
    LockProvider,
    MemoryElector,
    MemoryLocker,
    MemoryLockProvider,
    SessionLock,
    SqlElector,
    SqlLocker,
    SqlLockProvider,
    Term,
)

NAMES = [
    "AsyncElector",
    "AsyncLocker",
    "AsyncMemoryElector",
    "AsyncMemoryLocker",
    "AsyncSessionLock",
    "AsyncSqlElector",
    "AsyncSqlLocker",
    "AsyncTerm",
    "Elector",
    "Locker",
    "MemoryElector",
    "MemoryLocker",
    "SessionLock",
    "SqlElector",
    "SqlLocker",
    "Term",
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
MADE: list[tuple[type, type]] = [
    *PAIRS[:2],
    (SqlLocker, AsyncSqlLocker),
    (MemoryLocker, AsyncMemoryLocker),
    (SqlElector, AsyncSqlElector),
    (MemoryElector, AsyncMemoryElector),
]
EVERY: list[tuple[type, type]] = [
    PAIRS[2],
    *MADE,
    (Locker, AsyncLocker),
    (Elector, AsyncElector),
    (Lease, AsyncLease),
    (SessionLock, AsyncSessionLock),
    (Term, AsyncTerm),
]
OF_ITS_FORM = {"run": {"stop", "on_elected"}}
"""Arguments that one form has alone or calls in its own way: the blocking form cannot be cancelled."""
TOLD_FOR_EACH = {"run", "wait_lost", "on_lost"}
"""Methods that say of each form what happens there."""
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


@pytest.mark.parametrize(("blocking", "asyncio"), EVERY)
def test_both_forms_have_the_same_methods(blocking: type, asyncio: type) -> None:
    assert {asynchronous(name) for name in methods(blocking)} == set(methods(asyncio))
    public = {name for name in dir(blocking) if not name.startswith("_")} - {"close"}
    assert public == {name for name in dir(asyncio) if not name.startswith("_")} - {"aclose"}


@pytest.mark.parametrize(("blocking", "asyncio"), EVERY)
def test_both_forms_have_the_same_arguments(blocking: type, asyncio: type) -> None:
    for name, method in methods(blocking).items():
        other = methods(asyncio)[asynchronous(name)]
        own = OF_ITS_FORM.get(name, set())
        assert [each for each in arguments(method) if each[0] not in own] == [
            each for each in arguments(other) if each[0] not in own
        ], name
        if not name.startswith("_"):
            returned = [inspect.signature(each).return_annotation for each in (method, other)]
            assert blocking_name(returned[0]) == blocking_name(returned[1]), name


@pytest.mark.parametrize(("blocking", "asyncio"), EVERY)
def test_both_forms_have_the_same_docstrings(blocking: type, asyncio: type) -> None:
    for name, method in methods(blocking).items():
        if not name.startswith("_"):
            texts = [inspect.getdoc(each) for each in (method, methods(asyncio)[asynchronous(name)])]
            assert all(texts), name
            assert texts[0] == texts[1] or name in TOLD_FOR_EACH, name


@pytest.mark.parametrize(("blocking", "asyncio"), EVERY)
def test_both_forms_have_the_same_properties(blocking: type, asyncio: type) -> None:
    both = [
        {
            name: (blocking_name(member.fget.__annotations__.get("return")), inspect.getdoc(member))
            for name, member in inspect.getmembers(form, lambda each: isinstance(each, property))
            if not name.startswith("_")
        }
        for form in (blocking, asyncio)
    ]
    assert both[0].keys() == both[1].keys()
    assert all(text for _, text in both[0].values())
    for name, (kind, _) in both[0].items():
        assert kind == both[1][name][0], name


def test_the_lockers_and_electors_are_made_as_documented() -> None:
    common = {
        "namespace": "",
        "lease": 15,
        "heartbeat": 5,
        "naming": "sha256",
        "direct_url": None,
        "pooler": None,
        "max_session_locks": None,
        "sessions": 1,
    }
    own: dict[type, dict[str, Any]] = {
        SqlLocker: {**common, "prefix": "", "fencing": True},
        SqlElector: {**common, "strategy": "auto", "retry": 2, "prefix": "election:", "on_error": None},
    }
    for form, expected in own.items():
        made = inspect.signature(form).parameters
        assert next(iter(made)) == "bind"
        assert made["bind"].default is inspect.Parameter.empty
        rest = {name: each for name, each in made.items() if name != "bind"}
        assert expected.items() <= {name: each.default for name, each in rest.items()}.items()
        assert {each.kind for each in rest.values()} == {inspect.Parameter.KEYWORD_ONLY}


def test_the_methods_of_lockers_and_electors_take_the_documented_arguments() -> None:
    assert (
        str(inspect.signature(Locker.lock))
        == "(self, key: 'str', *, wait: 'Seconds | None' = None) -> 'SessionLock'"
    )
    assert str(inspect.signature(Locker.try_lock)) == "(self, key: 'str') -> 'SessionLock | None'"
    assert list(inspect.signature(Elector.run).parameters) == ["self", "key", "on_elected", "stop"]
    assert list(inspect.signature(AsyncElector.run).parameters) == ["self", "key", "on_elected"]
    for name in ("key", "fencing_token", "lost", "check", "on_lost", "guard"):
        assert hasattr(SessionLock, name), name
        assert hasattr(Term, name), name


def test_what_may_touch_the_database_is_awaited_and_check_never_is() -> None:
    awaited = {
        AsyncSqlLocker: ["lock", "try_lock", "inspect", "list_locks", "create_table", "aclose"],
        AsyncMemoryLocker: ["lock", "try_lock", "inspect", "list_locks", "create_table", "aclose"],
        AsyncSqlElector: ["run", "leader", "aclose"],
        AsyncMemoryElector: ["run", "leader", "aclose"],
        AsyncSessionLock: ["held", "unlock", "guard"],
        AsyncTerm: ["guard", "wait_lost"],
    }
    for form, names in awaited.items():
        for name in names:
            assert inspect.iscoroutinefunction(getattr(form, name)), (form, name)
        for name in ("check", "on_lost"):
            assert not inspect.iscoroutinefunction(getattr(form, name, None))


def test_every_locker_and_elector_satisfies_its_protocol() -> None:
    dead = "postgresql+psycopg://nobody@127.0.0.1:1/none"
    lockers: list[Any] = [MemoryLocker(), SqlLocker(dead)]
    electors: list[Any] = [MemoryElector(), SqlElector(dead), SqlElector(dead, strategy="lease")]
    assert all(isinstance(each, Locker) for each in lockers)
    assert all(isinstance(each, Elector) for each in electors)
    for each in (*lockers, *electors):
        each.close(0)
    assert isinstance(AsyncMemoryLocker(), AsyncLocker)
    assert isinstance(AsyncSqlLocker(dead), AsyncLocker)
    assert isinstance(AsyncMemoryElector(), AsyncElector)
    assert isinstance(AsyncSqlElector(dead), AsyncElector)


@pytest.mark.parametrize(("blocking", "asyncio"), MADE)
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
