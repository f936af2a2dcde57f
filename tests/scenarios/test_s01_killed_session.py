"""S01, S04. The session of a holder, or the process of a waiter, is killed."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from typing import Any

import pytest

from tests.conformance.kinds import Kind
from tests.conformance.polling import until
from tests.scenarios import locking
from tests.scenarios.arena import Arena, some_kinds
from tests.scenarios.targets import Target
from tests.scenarios.workers import Worker

OPTIONS: dict[str, Any] = {"lease": 3, "heartbeat": 0.5}
AT_ONCE = 1.0
PATIENCE = 20.0
SOME = some_kinds(
    "postgresql-psycopg-blocking",
    "postgresql-psycopg-asyncio",
    "postgresql-asyncpg-asyncio",
    "mysql-pymysql-blocking",
    "mariadb-aiomysql-asyncio",
)
each_kind = pytest.mark.parametrize("kind", SOME, ids=[kind.name for kind in SOME])
each_server = pytest.mark.parametrize("server", ["postgresql", "mysql", "mariadb"])


def ready(arena: Arena, targets: list[Target]) -> list[Worker]:
    """Return a process for each target, with the sessions of its two lockers open."""
    workers = arena.workers(targets)
    for name in ("", "other"):
        begun = [
            worker.start(locking.open_locker, target, name, **OPTIONS)
            for worker, target in zip(workers, targets, strict=True)
        ]
        for each in begun:
            each.result()
    return workers


@each_kind
def test_s01_a_killed_session_is_followed_and_its_holder_knows(arena: Arena, kind: Kind) -> None:
    target = arena.target(kind)
    failing, quiet = arena.key("failing"), arena.key("quiet")
    holder, contender = ready(arena, [target, target])
    holder.run(locking.begin_block, target, failing, fails=True)
    holder.run(locking.begin_block, target, quiet, fails=False, name="other")
    dead = {key: locking.carrier(arena.observer, key) for key in (failing, quiet)}
    waiting = contender.start(locking.take_all, target, [failing, quiet], wait=10.0)
    time.sleep(0.1)  # it has tried once
    killed: dict[str, float] = {}
    for key, session in dead.items():
        assert session is not None
        killed[key] = locking.kill(arena.observer, session)
    taken = dict(zip((failing, quiet), waiting.result(), strict=True))
    followers = {key: locking.carrier(arena.observer, key) for key in dead}
    assert set(followers.values()).isdisjoint(dead.values())
    told = {key: until(partial(holder.run, locking.block_losses, key), within=PATIENCE) for key in killed}
    for key, moment in killed.items():
        assert taken[key].moment - moment < AT_ONCE
        assert told[key][0] - moment < AT_ONCE
    time.sleep(2 * 0.5 + 0.1)  # two heartbeats, at which nothing comes back
    endings = {key: holder.run(locking.end_block, key) for key in killed}
    for ending in endings.values():
        assert ending.lost
        assert ending.check == "LeaseLost"
        assert ending.proven in (False, None)
        assert len(ending.losses) == 1, "it was told once"
    assert (endings[failing].error, endings[failing].text) == ("ValueError", "body")
    assert "is not held any more" in endings[failing].notes
    assert endings[quiet].error == "LeaseLost"
    # nobody took it from the one who has it, neither by a new session nor by the release
    assert {key: locking.carrier(arena.observer, key) for key in dead} == followers
    assert all(contender.run(locking.proven, key) for key in killed)
    assert all(contender.run(locking.give_back, key) for key in killed)


@each_server
def test_s04_a_waiter_that_dies_leaves_no_phantom(arena: Arena, server: str) -> None:
    targets = [arena.target(arena.kinds[number % len(arena.kinds)]) for number in range(4)]
    key = arena.key()
    holder, dying, waiter, last = ready(arena, targets)
    pid = dying.run(os.getpid)
    holder.run(locking.take, targets[0], key)
    carrying = locking.carrier(arena.observer, key)
    doomed = dying.start(locking.take, targets[1], key, wait=60)
    waiting = waiter.start(locking.take, targets[2], key, wait=60)
    time.sleep(0.4)
    assert not doomed.done
    assert not waiting.done
    os.kill(pid, signal.SIGKILL)
    assert locking.carrier(arena.observer, key) == carrying
    released = time.monotonic()
    assert holder.run(locking.give_back, key)
    taken = waiting.result()
    assert taken.moment - released < 1.5
    following = locking.carrier(arena.observer, key)
    assert following not in {None, carrying}
    assert not last.run(locking.try_lock, targets[3], key)
    assert waiter.run(locking.give_back, key)
    assert last.run(locking.try_lock, targets[3], key)
    assert locking.carrier(arena.observer, key) is None
