"""Both forms of a recipe have the same arguments and methods."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from sqllocks.recipes import audit, outbox, schedule

PAIRS = [
    (audit.AuditChain, audit.AsyncAuditChain),
    (outbox.Outbox, outbox.AsyncOutbox),
    (schedule.JobRunner, schedule.AsyncJobRunner),
    (schedule.Slots, schedule.AsyncSlots),
]


def arguments(function: Any) -> list[tuple[str, Any, Any]]:
    return [(each.name, each.kind, each.default) for each in inspect.signature(function).parameters.values()]


def methods(form: type) -> dict[str, Any]:
    return {name: each for name, each in inspect.getmembers(form, inspect.isfunction) if name[0] != "_"}


@pytest.mark.parametrize(("blocking", "asynchronous"), PAIRS, ids=lambda form: form.__name__)
def test_the_forms_have_the_same_methods(blocking: type, asynchronous: type) -> None:
    assert arguments(blocking) == arguments(asynchronous)
    assert methods(blocking).keys() == methods(asynchronous).keys()
    for name, method in methods(blocking).items():
        other = methods(asynchronous)[name]
        assert arguments(method) == arguments(other), name
        if "Job" not in blocking.__name__:  # a running job is told of a loss in the way of its form
            assert inspect.getdoc(method) == inspect.getdoc(other), name


@pytest.mark.parametrize("name", ["run_slot", "every"])
def test_the_functions_have_the_same_arguments(name: str) -> None:
    assert arguments(getattr(schedule, name)) == arguments(getattr(schedule, f"async_{name}"))
