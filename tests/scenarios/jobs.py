"""What other processes are told to do in more than one scenario."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from sqllocks import LockHandle
from tests.scenarios.targets import Clients, Target

clients = Clients()
"""The clients of this process."""


def wait_until(moment: float) -> None:
    """Return at the moment of the monotonic clock, which all processes of a machine share."""
    left = moment - time.monotonic()
    if left > 0:
        time.sleep(left)


def warm_up(target: Target) -> None:
    """Open the client and one connection of it."""
    clients.of(target).locked("warm up")


def close_all() -> None:
    """Close every client of the process."""
    clients.close()


def call(target: Target, method: str, /, *arguments: Any, **options: Any) -> Any:
    """Call a method of the provider."""
    return clients.of(target).call(method, *arguments, **options)


def acquire_at(moment: float, target: Target, key: str, *, ttl: float) -> LockHandle:
    """Acquire a key at a common moment, with zero wait."""
    client = clients.of(target)
    wait_until(moment)
    return client.acquire(key, ttl=ttl)


def take_each(target: Target, keys: Sequence[str], *, ttl: float) -> list[bool]:
    """Try each key in turn and give back what was granted; tell which were."""
    client = clients.of(target)
    granted = []
    for key in keys:
        handle = client.acquire(key, ttl=ttl)
        granted.append(handle.acquired)
        if handle:
            assert client.release(key, owner_token=handle.owner_token) is True
    return granted
