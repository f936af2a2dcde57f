"""G. The decorator: a function whose body runs under a lock."""

from __future__ import annotations

from typing import Any

import pytest

from sqllocks import LockNotAcquired, LockTimeout, LockValidationError, MemoryLockProvider, locked
from tests.conformance.subject import Subject


def decorated(subject: Subject, template: str, **options: Any) -> Any:
    """Return a function of the subject's form that tells whether its key was held meanwhile."""
    provider = subject.a.provider

    if subject.kind.asyncio:

        @locked(provider, template, **options)
        async def work(name: str, *, extra: int = 1) -> tuple[str, int, bool]:
            """Work on it."""
            return name, extra, await provider.locked(name)

        return lambda *args, **kwargs: subject.run(work(*args, **kwargs))

    @locked(provider, template, **options)
    def blocking_work(name: str, *, extra: int = 1) -> tuple[str, int, bool]:
        """Work on it."""
        return name, extra, provider.locked(name)

    return blocking_work


def test_c074_the_body_runs_under_the_lock(subject: Subject) -> None:
    key = subject.key()
    work = decorated(subject, "{name}", ttl=5)
    assert work(key, extra=7) == (key, 7, True)
    assert subject.b.locked(key) is False


def test_c074_where_it_is_busy_the_body_does_not_run(subject: Subject) -> None:
    key = subject.key()
    holder = subject.b.acquire(key, ttl=30)
    with pytest.raises(LockNotAcquired):
        decorated(subject, "{name}", ttl=5)(key)
    with pytest.raises(LockTimeout):
        decorated(subject, "{name}", ttl=5, wait=0.2)(key)
    assert decorated(subject, "{name}", ttl=5, skip=True)(key) is None
    subject.b.release(key, owner_token=holder.owner_token)


def test_a_busy_lock_inside_the_body_is_not_skipped(memory_subject: Subject) -> None:
    provider = MemoryLockProvider()

    @locked(provider, "outer", ttl=5, skip=True)
    def outer() -> None:
        provider.require_acquire("outer", ttl=5)

    with pytest.raises(LockNotAcquired):
        outer()


def test_methods_and_attributes() -> None:
    provider = MemoryLockProvider()

    class Tenant:
        ident = "t1"

        @locked(provider, "tenant:{self.ident}:{parts[0]}", ttl=5)
        def work(self, parts: list[str]) -> list[str]:
            """Say which keys are held."""
            return [info.lock_key for info in provider.list_locks() if info.held]

    assert Tenant().work(["a", "b"]) == ["tenant:t1:a"]
    assert Tenant.work.__doc__ == "Say which keys are held."


@pytest.mark.parametrize("template", ["{other}", "{}", "{0}", "", "  ", "{name", 7])
def test_templates_are_checked_when_decorating(template: Any) -> None:
    with pytest.raises(LockValidationError):

        @locked(MemoryLockProvider(), template, ttl=5)
        def work(name: str) -> None: ...


def test_options_are_checked_when_decorating() -> None:
    with pytest.raises(LockValidationError):
        locked(MemoryLockProvider(), "key", ttl=0)
    with pytest.raises(TypeError, match="ttl"):
        locked(MemoryLockProvider(), "key")  # type: ignore[call-arg]


def test_the_forms_must_fit() -> None:
    with pytest.raises(TypeError, match="Async provider"):

        @locked(MemoryLockProvider(), "key", ttl=5)
        async def work() -> None: ...

    with pytest.raises(TypeError, match="generator"):

        @locked(MemoryLockProvider(), "key", ttl=5)
        def numbers() -> Any:
            yield 1
