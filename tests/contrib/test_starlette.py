"""A Starlette application on two instances over real HTTP: one effect, the rest is told 409."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import httpx
import pytest
from sqlalchemy import create_engine, text

from tests.contrib.serving import served
from tests.servers import fresh_database, require_server

POSTS = 200
WINDOW = 6.0
"""Seconds for which one payment keeps others out; all posts have to be answered within it."""


@pytest.mark.anyio
async def test_200_posts_to_two_processes_have_one_effect_per_window() -> None:
    require_server("postgresql")
    with fresh_database("postgresql") as url:
        shop = {
            "DATABASE_URL": url.set(drivername="postgresql+asyncpg").render_as_string(hide_password=False),
            "WINDOW": str(WINDOW),
        }
        with (
            served("examples.starlette_app:app", **shop) as one,
            served("examples.starlette_app:app", **shop) as two,
        ):
            await _check(one, two)
        engine = create_engine(url.set(drivername="postgresql+psycopg"))
        with engine.connect() as connection:
            paid = connection.execute(text("SELECT order_id FROM payments")).scalars().all()
            left = connection.execute(
                text("SELECT count(*) FROM core_locks WHERE lock_key = 'shop:order:17'")
            )
            assert left.scalar() == 1
        engine.dispose()
    assert paid == ["17", "17"]


async def _check(one: str, two: str) -> None:
    limits = httpx.Limits(max_connections=POSTS)
    async with httpx.AsyncClient(limits=limits, timeout=30) as client:
        began = time.monotonic()
        posts = [client.post(f"{(one, two)[number % 2]}/orders/17/pay") for number in range(POSTS)]
        answers = await asyncio.gather(*posts)
        assert time.monotonic() - began < WINDOW, "too slow to say anything"
        assert Counter(answer.status_code for answer in answers) == {201: 1, 409: POSTS - 1}
        for answer in answers:
            if answer.status_code == 409:
                assert answer.json() == {"code": "LOCK_NOT_ACQUIRED", "details": {"lock_key": "order:17"}}
                assert 1 <= int(answer.headers["Retry-After"]) <= WINDOW + 1
        again = await _paid(client, f"{two}/orders/17/pay")
        assert time.monotonic() - began > WINDOW - 1
        first = next(answer for answer in answers if answer.status_code == 201)
        assert again.json()["token"] > first.json()["token"]
        assert (await client.post(f"{one}/orders/17/pay")).status_code == 409


async def _paid(client: httpx.AsyncClient, url: str) -> httpx.Response:
    """Do as the answers say until the next window begins."""
    limit = time.monotonic() + 4 * WINDOW
    while time.monotonic() < limit:
        answer = await client.post(url)
        if answer.status_code == 201:
            return answer
        await asyncio.sleep(min(float(answer.headers["Retry-After"]), 1))
    raise AssertionError("the key never came free")
