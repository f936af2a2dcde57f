"""Lockers, electors and what makes them from a URL are one thing in both forms."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import sqllocks
from tests.conformance.test_parity import arguments, asynchronous, blocking_name, methods

PAIRS = [
    (getattr(sqllocks, name), getattr(sqllocks, f"Async{name}"))
    for name in ("SqlLocker", "MemoryLocker", "Locker", "SqlElector", "MemoryElector", "Elector")
]
FUNCTIONS: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (getattr(sqllocks, f"create_{name}"), getattr(sqllocks, f"create_async_{name}"))
    for name in ("provider", "locker", "elector", "elector_auto")
]
# the blocking form is stopped by an event, the asyncio form is cancelled
DIFFERS = {"run"}


@pytest.mark.parametrize(("blocking", "asyncio"), PAIRS)
def test_both_forms_have_the_same_methods_arguments_and_docstrings(blocking: type, asyncio: type) -> None:
    assert {asynchronous(name) for name in methods(blocking)} == set(methods(asyncio))
    for name, method in methods(blocking).items():
        other = methods(asyncio)[asynchronous(name)]
        assert inspect.iscoroutinefunction(other), name
        assert not inspect.iscoroutinefunction(method), name
        if name in DIFFERS:
            continue
        assert arguments(method) == arguments(other), name
        if not name.startswith("_"):
            assert inspect.getdoc(method) == inspect.getdoc(other), name
            returned = [inspect.signature(each).return_annotation for each in (method, other)]
            assert blocking_name(returned[0]) == blocking_name(returned[1]), name


@pytest.mark.parametrize(("blocking", "asyncio"), [pair for pair in PAIRS if pair[0].__name__[0] in "SM"])
def test_both_forms_are_made_with_the_same_arguments(blocking: type, asyncio: type) -> None:
    made, other = (inspect.signature(form).parameters.values() for form in (blocking, asyncio))
    assert [(each.name, each.kind, each.default) for each in made] == [
        (each.name, each.kind, each.default) for each in other
    ]


@pytest.mark.parametrize(("blocking", "asyncio"), FUNCTIONS)
def test_both_forms_are_made_from_a_url_in_the_same_way(
    blocking: Callable[..., Any], asyncio: Callable[..., Any]
) -> None:
    assert arguments(blocking) == arguments(asyncio)
    assert not inspect.iscoroutinefunction(asyncio)
    returned = [inspect.signature(each).return_annotation for each in (blocking, asyncio)]
    assert returned[1] == f"Async{returned[0]}"


def test_each_satisfies_its_protocol() -> None:
    for name in ("Locker", "Elector"):
        assert isinstance(getattr(sqllocks, f"Memory{name}")(), getattr(sqllocks, name))
        assert isinstance(getattr(sqllocks, f"AsyncMemory{name}")(), getattr(sqllocks, f"Async{name}"))
        assert not isinstance(object(), getattr(sqllocks, name))
