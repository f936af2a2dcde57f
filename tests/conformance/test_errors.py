"""The errors: what they tell, and that they survive being sent to another process."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import sqllocks
from sqllocks import (
    BackendUnavailable,
    BackendUnsupported,
    LeaseLost,
    LockError,
    LockNotAcquired,
    LockTimeout,
    LockValidationError,
    SchemaMissing,
    StaleFencingToken,
    TransactionConflict,
)
from tests.conformance.calls import TTL
from tests.conformance.subject import Subject

DOCUMENTED: list[tuple[type[LockError], str, int, tuple[type[Exception], ...]]] = [
    (LockNotAcquired, "LOCK_NOT_ACQUIRED", 409, (LockError,)),
    (LockTimeout, "LOCK_NOT_ACQUIRED", 409, (LockNotAcquired, TimeoutError)),
    (LeaseLost, "LOCK_LOST", 409, (LockError,)),
    (StaleFencingToken, "LOCK_STALE_TOKEN", 409, (LeaseLost,)),
    (LockValidationError, "VALIDATION_ERROR", 400, (LockError, ValueError)),
    (TransactionConflict, "LOCK_TRANSACTION_CONFLICT", 409, (LockError,)),
    (BackendUnavailable, "LOCK_BACKEND_UNAVAILABLE", 503, (LockError,)),
    (BackendUnsupported, "LOCK_BACKEND_UNSUPPORTED", 501, (LockError,)),
    (SchemaMissing, "LOCK_SCHEMA_MISSING", 500, (LockError,)),
]
KINDS = [kind for kind, *_ in DOCUMENTED]


def same(one: BaseException, other: Any) -> None:
    """Assert that a copy tells what the original tells."""
    assert type(other) is type(one)
    assert isinstance(one, LockError)
    for name in ("code", "message", "status", "details", "args"):
        assert getattr(other, name) == getattr(one, name)
    assert str(other) == str(one)
    assert type(other.__cause__) is type(one.__cause__)


@pytest.mark.parametrize(("kind", "code", "status", "bases"), DOCUMENTED)
def test_an_error_has_its_code_status_and_bases(
    kind: type[LockError], code: str, status: int, bases: tuple[type[Exception], ...]
) -> None:
    error = kind("what happened", details={"lock_key": "job"})
    assert (error.code, error.status, error.message) == (code, status, "what happened")
    assert error.details == {"lock_key": "job"}
    assert str(error) == "what happened"
    for base in bases:
        assert isinstance(error, base)
    assert kind("without details").details == {}


def test_every_public_error_is_documented_here() -> None:
    public = {getattr(sqllocks, name) for name in sqllocks.__all__}
    errors = {each for each in public if isinstance(each, type) and issubclass(each, BaseException)}
    assert errors == {LockError, *KINDS}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_an_error_can_be_pickled_with_its_cause(kind: type[LockError], protocol: int) -> None:
    error = kind("what happened", details={"lock_key": "job", "outcome": "pending"})
    error.__cause__ = OSError(111, "refused")
    sent = pickle.loads(pickle.dumps(error, protocol))
    same(error, sent)
    assert sent.__cause__.args == (111, "refused")


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_can_be_copied(kind: type[LockError]) -> None:
    error = kind("what happened", details={"lock_key": "job"})
    same(error, copy.copy(error))
    deep = copy.deepcopy(error)
    same(error, deep)
    deep.details["lock_key"] = "another"
    assert error.details == {"lock_key": "job"}


@pytest.mark.parametrize("retryable", [True, False])
def test_a_conflict_keeps_whether_it_may_be_tried_again(retryable: bool) -> None:
    error = TransactionConflict("what happened", retryable=retryable)
    assert error.retryable is retryable
    assert pickle.loads(pickle.dumps(error)).retryable is retryable


def caught(subject: Subject, kind: type[LockError], address: str | None, **options: Any) -> LockError:
    """Return the error that a real failure gives."""
    client = subject.client(address, **options)
    with pytest.raises(kind) as failure:
        client.require_acquire("key", ttl=TTL)
    return failure.value


def test_the_error_of_a_server_that_is_down_can_be_pickled(table_subject: Subject) -> None:
    error = caught(table_subject, BackendUnavailable, table_subject.unreachable)
    assert error.__cause__ is not None
    same(error, pickle.loads(pickle.dumps(error)))


def test_the_error_of_a_missing_table_can_be_pickled(table_subject: Subject) -> None:
    error = caught(table_subject, SchemaMissing, None, table="never_made")
    assert error.__cause__ is not None
    same(error, pickle.loads(pickle.dumps(error)))


def test_the_errors_of_a_busy_key_can_be_pickled(subject: Subject) -> None:
    key = subject.key()
    subject.a.acquire(key, ttl=TTL)
    for wait, kind in ((0, LockNotAcquired), (0.1, LockTimeout)):
        with pytest.raises(kind) as failure:
            subject.b.require_acquire(key, ttl=TTL, wait=wait)
        assert type(failure.value) is kind
        same(failure.value, pickle.loads(pickle.dumps(failure.value)))


def test_a_validation_error_can_be_pickled(subject: Subject) -> None:
    with pytest.raises(LockValidationError) as failure:
        subject.a.acquire("", ttl=TTL)
    same(failure.value, pickle.loads(pickle.dumps(failure.value)))
