"""An asyncio object belongs to the event loop of its first use."""

from __future__ import annotations

import asyncio

import pytest

from sqllocks import LockError
from tests.conformance.calls import TTL
from tests.conformance.subject import Subject


def test_another_loop_gets_an_error_that_says_so(asyncio_table_subject: Subject) -> None:
    subject = asyncio_table_subject
    client = subject.client()
    key = subject.key()
    handle = client.acquire(key, ttl=TTL)
    before = subject.snapshot(key)
    for method, options in (
        ("acquire", {"ttl": TTL}),
        ("release", {"owner_token": handle.owner_token}),
        ("locked", {}),
    ):
        with asyncio.Runner() as runner, pytest.raises((RuntimeError, LockError), match="event loop"):
            runner.run(getattr(client.provider, method)(key, **options))
    assert subject.snapshot(key) == before
    assert client.release(key, owner_token=handle.owner_token) is True
