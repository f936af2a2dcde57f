"""F. Memory does what the table does, and is never chosen for anybody."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sqllocks import (
    AsyncMemoryLockProvider,
    AsyncSqlLockProvider,
    BackendUnsupported,
    LockError,
    MemoryLockProvider,
    SqlLockProvider,
)
from tests.conformance.calls import TTL
from tests.conformance.driving import Call, together
from tests.conformance.subject import Subject

ROOT = Path(__file__).resolve().parents[2]


def test_c071_tokens_continue_after_release_and_expiry(memory_subject: Subject) -> None:
    key = memory_subject.key()
    first = memory_subject.a.acquire(key, ttl=TTL)
    memory_subject.a.release(key, owner_token=first.owner_token)
    second = memory_subject.a.acquire(key, ttl=TTL)
    memory_subject.expire(key)
    third = memory_subject.a.acquire(key, ttl=TTL)
    memory_subject.a.break_lock(key)
    fourth = memory_subject.a.acquire(key, ttl=TTL)
    tokens = [handle.fencing_token for handle in (first, second, third, fourth)]
    assert tokens == sorted(set(tokens))


def test_c071_tokens_continue_when_the_clock_goes_back(memory_subject: Subject) -> None:
    moment = [memory_subject.now()]
    client = memory_subject.client(clock=lambda: moment[0])
    key = memory_subject.key()
    first = client.acquire(key, ttl=TTL)
    client.release(key, owner_token=first.owner_token)
    moment[0] = moment[0].replace(year=moment[0].year - 1)
    assert client.locked(key) is False
    second = client.acquire(key, ttl=TTL)
    assert (second.acquired, second.fencing_token) == (True, first.fencing_token + 1)


def test_c072_one_of_many_tasks_or_threads_wins(memory_subject: Subject) -> None:
    for _ in range(20):
        key = memory_subject.key()
        handles = together([Call(memory_subject.a, "acquire", key, {"ttl": TTL}) for _ in range(32)])
        assert sum(handle.acquired for handle in handles) == 1
        (winner,) = [handle for handle in handles if handle.acquired]
        assert {handle.fencing_token for handle in handles} == {winner.fencing_token}


def test_c072_two_memory_providers_do_not_exclude_each_other(memory_subject: Subject) -> None:
    key = memory_subject.key()
    other = memory_subject.client()
    assert memory_subject.a.acquire(key, ttl=TTL).acquired is True
    assert other.acquire(key, ttl=TTL).acquired is True


@pytest.mark.parametrize("form", [SqlLockProvider, AsyncSqlLockProvider])
def test_c073_a_bind_is_never_replaced_by_memory(form: type) -> None:
    with pytest.raises(TypeError):
        form()
    for nothing in (None, ""):
        with pytest.raises((TypeError, LockError)):
            form(nothing)
    assert not issubclass(form, MemoryLockProvider | AsyncMemoryLockProvider)


@pytest.mark.parametrize("database", ["", "/:memory:", "/file::memory:?uri=true"])
def test_c073_sqlite_in_memory_is_refused_and_the_remedy_named(database: str) -> None:
    with pytest.raises(BackendUnsupported, match="MemoryLockProvider") as caught:
        SqlLockProvider(f"sqlite://{database}").acquire("key", ttl=TTL)
    assert caught.value.status == 501


def test_c073_memory_says_that_it_excludes_no_other_process() -> None:
    for form in (MemoryLockProvider, AsyncMemoryLockProvider):
        assert "process" in (form.__doc__ or "").lower()


def test_c073_importing_the_library_makes_no_provider() -> None:
    code = (
        "import gc, sqllocks\n"
        "kinds = (sqllocks.MemoryLockProvider, sqllocks.AsyncMemoryLockProvider)\n"
        "assert not [made for made in gc.get_objects() if isinstance(made, kinds)]\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)
