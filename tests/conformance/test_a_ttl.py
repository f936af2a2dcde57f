"""A. Arguments: how long a lock may be taken."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest

from sqllocks import LockValidationError
from tests.conformance.calls import TTL
from tests.conformance.subject import Subject

TAKING = ["acquire", "require_acquire"]
UNUSABLE: list[Any] = [
    math.nan,
    math.inf,
    -math.inf,
    True,
    False,
    "30",
    "",
    b"30",
    None,
    [],
    0.0999,
    timedelta(milliseconds=99),
    timedelta(days=30, microseconds=1),
    30 * 86_400.0 + 0.001,
    timedelta.max,
    10**400,
    -(10**400),
]


def refused_ttl(subject: Subject, method: str, ttl: Any) -> None:
    """Assert that a ttl is refused and leaves a free and a held key as they were."""
    free, held = subject.key("free"), subject.key("held")
    owner = subject.a.acquire(held, ttl=TTL).owner_token
    before = subject.snapshot(held)
    for key in (free, held):
        with pytest.raises(LockValidationError) as caught:
            subject.a.call(method, key, ttl=ttl, owner_token=owner)
        assert caught.value.code == "VALIDATION_ERROR"
    assert subject.unknown(free)
    assert subject.snapshot(held) == before


def test_c001_a_ttl_of_zero_is_refused_and_stores_nothing(subject: Subject) -> None:
    for zero in (0, 0.0, -0.0, timedelta()):
        refused_ttl(subject, "acquire", zero)


@pytest.mark.parametrize("method", [*TAKING, "extend"])
def test_c002_a_negative_ttl_is_refused(subject: Subject, method: str) -> None:
    for negative in (-1, -0.001, timedelta(seconds=-30)):
        refused_ttl(subject, method, negative)


@pytest.mark.parametrize("method", [*TAKING, "extend"])
def test_c003_a_ttl_that_is_no_span_in_range_is_refused(subject: Subject, method: str) -> None:
    for unusable in UNUSABLE:
        refused_ttl(subject, method, unusable)


@pytest.mark.parametrize(
    "ttl", [0.1, 1, 2.5, timedelta(milliseconds=100), timedelta(days=30), 30 * 86_400], ids=repr
)
def test_c003_both_ends_of_the_range_and_a_timedelta_are_accepted(subject: Subject, ttl: Any) -> None:
    key = subject.key()
    assert subject.a.acquire(key, ttl=ttl).acquired


def test_c004_there_is_no_default_ttl(subject: Subject) -> None:
    key = subject.key()
    for method in TAKING:
        with pytest.raises(TypeError):
            subject.a.call(method, key)
    with pytest.raises(TypeError):
        subject.a.call("extend", key, owner_token="somebody")
    assert subject.unknown(key)


def test_c004_a_ttl_is_given_by_name_only(subject: Subject) -> None:
    key = subject.key()
    for method in TAKING:
        with pytest.raises(TypeError):
            subject.a.call(method, key, TTL)
    assert subject.unknown(key)
