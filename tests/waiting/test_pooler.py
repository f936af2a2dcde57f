"""Behind a pooler nobody is told of releases: waiters ask."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.conformance.kinds import Kind
from tests.servers import require_server
from tests.servers.urls import driverless
from tests.waiting.settings import TTL, Databases, Setting, one_after_another, until

POOLED = tuple(
    Kind("postgresql", driver, form)
    for driver, form in (("psycopg", False), ("psycopg", True), ("asyncpg", True))
)


@pytest.fixture(params=POOLED, ids=[kind.name for kind in POOLED])
def pooled(request: pytest.FixtureRequest, databases: Databases) -> Iterator[tuple[Setting, Setting]]:
    """Return a setting behind a transaction pooler, and the same one without it."""
    kind: Kind = request.param
    require_server("postgresql")
    pooler = driverless(require_server("pgbouncer"))
    direct = databases.of(kind)
    assert direct is not None
    behind = direct.set(host=pooler.host, port=pooler.port)
    # statement caches do not go together with a transaction pooler
    caches: dict[str, dict[str, Any]] = {
        "asyncpg": {"prepared_statement_cache_size": 0},
        "psycopg": {"prepare_threshold": None},
    }
    with ExitStack() as stack:
        yield (
            Setting(kind, behind, stack, connect_args=caches[kind.driver]),
            Setting(kind, direct, stack),
        )


def test_waiters_behind_a_pooler_are_served(
    pooled: tuple[Setting, Setting], caplog: pytest.LogCaptureFixture
) -> None:
    behind, direct = pooled
    waiter, holder = behind.client(behind.engine()), direct.client()
    owner = holder.acquire("pooled", ttl=TTL).owner_token
    with caplog.at_level(logging.INFO, "sqllocks"):
        waiting = one_after_another(waiter, "pooled", 2, wait=60)
        until(lambda: "pooler" in caplog.text)
    holder.release("pooled", owner_token=owner)
    for future in waiting:
        waiter.release("pooled", owner_token=future.result(10).owner_token)
    assert caplog.text.count("pooler") == 1


def test_a_release_through_a_pooler_is_told_to_those_without(pooled: tuple[Setting, Setting]) -> None:
    behind, direct = pooled
    holder, waiter = behind.client(behind.engine()), direct.client()
    owner = holder.acquire("through", ttl=TTL).owner_token
    (waiting,) = one_after_another(waiter, "through", 1, wait=60)
    holder.release("through", owner_token=owner)
    waiter.release("through", owner_token=waiting.result(10).owner_token)


def test_a_pooler_is_found_once(pooled: tuple[Setting, Setting], caplog: pytest.LogCaptureFixture) -> None:
    behind, direct = pooled
    waiter, holder = behind.client(behind.engine()), direct.client()
    with caplog.at_level(logging.INFO, "sqllocks"):
        for key in ("once", "twice"):
            owner = holder.acquire(key, ttl=TTL).owner_token
            (waiting,) = one_after_another(waiter, key, 1, wait=60)
            until(lambda: "pooler" in caplog.text)
            holder.release(key, owner_token=owner)
            waiter.release(key, owner_token=waiting.result(10).owner_token)
    assert caplog.text.count("pooler") == 1
