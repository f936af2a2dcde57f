"""A provider that was used before ``os.fork()`` works on both sides of it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conformance.kinds import Kind
from tests.scenarios.arena import TABLE_KINDS, Arena

LIMIT = 60.0
KINDS = tuple(kind for kind in TABLE_KINDS if not kind.asyncio)


@pytest.mark.parametrize("bound", ["url", "engine"])
@pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
def test_a_fork_harms_neither_side(arena: Arena, kind: Kind, bound: str) -> None:
    held, free = arena.key("held"), arena.key("free")
    arena.close_clients()  # the program counts the sessions on the database
    done = subprocess.run(
        [sys.executable, "-m", "tests.scenarios.forking", arena.target(kind).address, bound, held, free],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    # nobody gave the lease back: not the child, nor the parent by its own end
    stored = arena.observer.stored(held)
    assert stored is not None
    assert stored.attempt
    assert arena.client.break_lock(held) is True
