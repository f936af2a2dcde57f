"""A. Arguments: keys and owner tokens."""

from __future__ import annotations

from typing import Any

import pytest

from sqllocks import LockError, LockValidationError
from tests.conformance.calls import ALL, TTL
from tests.conformance.driving import Client
from tests.conformance.subject import Subject

BLANK = ["", " ", "   ", "\t\n", "\u00a0\u2003"]
OWNED = ["acquire", "require_acquire", "release", "extend"]


def refused(client: Client, method: str, key: Any, **options: Any) -> LockValidationError:
    """Return the validation error of a call."""
    with pytest.raises(LockValidationError) as caught:
        client.call(method, key, **options)
    assert caught.value.code == "VALIDATION_ERROR"
    return caught.value


@pytest.mark.parametrize("method", ALL)
def test_c005_an_empty_or_blank_key_is_refused(subject: Subject, method: str) -> None:
    for blank in BLANK:
        refused(subject.a, method, blank, **ALL[method])
        if subject.kind.table:
            assert subject.unknown(blank)


@pytest.mark.parametrize("method", ALL)
def test_c005_a_key_that_is_no_text_is_refused(subject: Subject, method: str) -> None:
    for other in (None, 7, b"key", ["key"]):
        refused(subject.a, method, other, **ALL[method])


@pytest.mark.parametrize("method", OWNED)
def test_c006_an_empty_or_blank_owner_token_is_refused(subject: Subject, method: str) -> None:
    key = subject.key()
    for blank in BLANK:
        refused(subject.a, method, key, **{**ALL[method], "owner_token": blank})
    assert subject.unknown(key)


@pytest.mark.parametrize("method", ALL)
def test_c007_a_key_that_is_too_long_or_holds_a_nul_is_refused(subject: Subject, method: str) -> None:
    for unusable in ("k" * 256, "锁" * 256, "nul\x00", "\x00", "\x00nul", "n" * 10_000):
        refused(subject.a, method, unusable, **ALL[method])


@pytest.mark.parametrize("method", OWNED)
def test_c007_an_owner_that_is_too_long_or_holds_a_nul_is_refused(subject: Subject, method: str) -> None:
    key = subject.key()
    for unusable in ("o" * 129, "锁" * 129, "nul\x00", "\x00"):
        refused(subject.a, method, key, **{**ALL[method], "owner_token": unusable})
    assert subject.unknown(key)


@pytest.mark.parametrize("method", ALL)
def test_c007_the_namespace_counts_as_part_of_the_key(table_subject: Subject, method: str) -> None:
    client = table_subject.client(namespace="ten chars:")
    refused(client, method, "k" * 246, **ALL[method])


@pytest.mark.parametrize("method", ALL)
def test_c007_nothing_is_sent_for_a_refused_argument(table_subject: Subject, method: str) -> None:
    client = table_subject.client(table_subject.unreachable)
    refused(client, method, "k" * 256, **ALL[method])
    refused(client, method, "nul\x00", **ALL[method])
    if "ttl" in ALL[method]:
        refused(client, method, "key", **{**ALL[method], "ttl": 0})
    if method in OWNED:
        refused(client, method, "key", **{**ALL[method], "owner_token": "o" * 129})


@pytest.mark.parametrize("letter", ["k", "锁", "😀"])
def test_c007_the_longest_key_and_owner_work_in_any_script(subject: Subject, letter: str) -> None:
    key = subject.key() + letter * 255
    key, owner = key[:255], letter * 128
    handle = subject.a.acquire(key, ttl=TTL, owner_token=owner)
    assert (handle.acquired, handle.lock_key, handle.owner_token) == (True, key, owner)
    assert subject.b.locked(key) is True
    assert subject.b.release(key, owner_token=owner) is True


def test_c007_the_longest_key_under_a_namespace_works(table_subject: Subject) -> None:
    namespace = table_subject.key("space")
    client = table_subject.client(namespace=namespace)
    key = "k" * (255 - len(namespace))
    assert client.acquire(key, ttl=TTL).lock_key == key
    assert table_subject.stored(namespace + key).lock_key == namespace + key


def test_c013_a_validation_error_tells_code_message_and_status(subject: Subject) -> None:
    error = refused(subject.a, "acquire", "", ttl=TTL)
    assert isinstance(error, LockError)
    assert isinstance(error, ValueError)
    assert (error.code, error.status) == ("VALIDATION_ERROR", 400)
    assert error.message
    assert error.message in str(error)
    assert isinstance(error.details, dict)
