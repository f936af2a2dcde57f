"""Jobs of a storm: many processes on few locks, and somebody who is always in their way."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy import create_engine, text

from sqllocks import LockHandle, LockNotAcquired
from tests.conformance.driving import Client
from tests.scenarios import jobs
from tests.scenarios.targets import Target

T = TypeVar("T")

TTL = 60.0
"""So long that a lock which a failed release left behind is still there at the end."""
ROW_HELD = 0.5
FILE_HELD = 0.02


@dataclass(slots=True)
class Storm:
    """What one process met."""

    outcomes: Counter[str] = field(default_factory=Counter)
    """How often each call ended how: with an answer, or an error's name."""
    errors: list[str] = field(default_factory=list)
    """Errors that a caller must never see."""
    longest: dict[str, float] = field(default_factory=dict)
    """The longest time that each call took."""
    held: list[tuple[str, int, float, float]] = field(default_factory=list)
    """Key, token, and the moments between which this process surely held it."""


def storm(moment: float, target: Target, keys: Sequence[str], *, seconds: float, wait: float) -> Storm:
    """Acquire, renew and release as fast as possible, now and then with a wait."""
    client = jobs.clients.of(target)
    met = Storm()
    chance = random.Random(moment)
    jobs.wait_until(moment)
    while time.monotonic() < moment + seconds:
        key = chance.choice(keys)
        handle = _ask(met, client, key, wait=wait if chance.random() < 0.3 else 0)
        if handle is not None and handle.acquired:
            _use(met, client, handle)
    return met


def _ask(met: Storm, client: Client, key: str, *, wait: float) -> LockHandle | None:
    if wait:
        return _timed(met, "wait", lambda: client.require_acquire(key, ttl=TTL, wait=wait))
    return _timed(met, "acquire", lambda: client.acquire(key, ttl=TTL))


def _use(met: Storm, client: Client, handle: LockHandle) -> None:
    key, owner = handle.lock_key, handle.owner_token
    won = time.monotonic()
    extended = _timed(met, "extend", lambda: client.extend(key, owner_token=owner, ttl=TTL))
    if extended is None:
        met.errors.append(f"extend of one's own lease {key!r} failed")
    met.held.append((key, handle.fencing_token, won, time.monotonic()))
    if _timed(met, "release", lambda: client.release(key, owner_token=owner)) is not True:
        met.errors.append(f"release of one's own lease {key!r} failed")


def _timed(met: Storm, name: str, act: Callable[[], T]) -> T | None:
    started = time.monotonic()
    try:
        answer = act()
        met.outcomes[f"{name}: {'granted' if answer else 'refused'}"] += 1
        return answer
    except LockNotAcquired as error:
        met.outcomes[f"{name}: {type(error).__name__}"] += 1
    except Exception as error:
        met.outcomes[f"{name}: {type(error).__name__}"] += 1
        met.errors.append(f"{name}: {error!r} after {error.__cause__!r}")
    finally:
        met.longest[name] = max(met.longest.get(name, 0.0), time.monotonic() - started)
    return None


def hold_rows(address: str, keys: Sequence[str], *, seconds: float) -> int:
    """Lock rows of the table in long transactions, reading or writing them, one or two at a time."""
    ways: list[Callable[[Any], None]] = [
        lambda connection: _lock(connection, keys[:1]),
        lambda connection: _rewrite(connection, keys[1]),
        lambda connection: _lock(connection, keys[::-2]),
    ]
    return _again_and_again(address, ways, held=ROW_HELD, pause=0.05, seconds=seconds)


def write_file(address: str, *, seconds: float) -> int:
    """Keep writing something else into the file."""
    ways: list[Callable[[Any], None]] = [_note]
    return _again_and_again(address, ways, held=FILE_HELD, pause=0.001, seconds=seconds)


def _again_and_again(
    address: str, ways: Sequence[Callable[[Any], None]], *, held: float, pause: float, seconds: float
) -> int:
    until = time.monotonic() + seconds
    wait = {"timeout": 30} if address.startswith("sqlite") else {}
    engine = create_engine(address, connect_args=wait)
    done = 0
    while time.monotonic() < until:
        with engine.begin() as connection:
            ways[done % len(ways)](connection)
            time.sleep(held)
        done += 1
        time.sleep(pause)
    engine.dispose()
    return done


def _lock(connection: Any, keys: Sequence[str]) -> None:
    for key in keys:
        statement = text("SELECT lock_key FROM core_locks WHERE lock_key = :key FOR UPDATE")
        assert connection.execute(statement, {"key": key}).all()


def _rewrite(connection: Any, key: str) -> None:
    statement = text("UPDATE core_locks SET server_lock = server_lock, kind = kind WHERE lock_key = :key")
    assert connection.execute(statement, {"key": key}).rowcount == 1


def _note(connection: Any) -> None:
    connection.execute(text("INSERT INTO notes (content) VALUES ('something else')"))
