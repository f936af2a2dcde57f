"""Several processes wait for one key; a child of a waiting process; the end of a process that waited."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sqllocks import AsyncSqlLockProvider, SqlLockProvider
from tests.faults.processes import FORKING
from tests.waiting.competing import ROUNDS, Grant, compete
from tests.waiting.settings import TTL, Setting, until

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60


def script(text: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a Python program in which warnings are errors."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", text, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def told_by(process: subprocess.Popen[str]) -> str:
    """Return what a program printed; it must have ended well and in silence."""
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (0, "")
    return out


def test_processes_that_wait_get_the_key_one_after_the_other(table_setting: Setting) -> None:
    client = table_setting.client()
    owner = client.acquire("processes", ttl=TTL).owner_token
    started = []
    for _ in range(4):
        ours, theirs = FORKING.Pipe(duplex=False)
        arguments = (table_setting.address, table_setting.kind.asyncio, "processes", theirs)
        process = FORKING.Process(target=compete, args=arguments, daemon=True)
        process.start()
        theirs.close()
        started.append((process, ours))
    client.release("processes", owner_token=owner)
    grants: list[Grant] = []
    for process, pipe in started:
        assert pipe.poll(PATIENCE), "no answer"
        grants += pipe.recv()
        process.join(PATIENCE)
        assert process.exitcode == 0
    grants.sort()
    assert len({token for token, _, _ in grants}) == 4 * ROUNDS
    assert all(before[2] <= after[1] for before, after in itertools.pairwise(grants)), "two held it"


FORK = """
import os, sys, threading
from sqllocks import LockTimeout, SqlLockProvider

address = sys.argv[1]
provider = SqlLockProvider(address)
lines = provider._leases._waiting._lines._lines

def wait():
    handle = provider.require_acquire("fork", ttl=60, wait=60)
    print("parent was served", flush=True)
    provider.release("fork", owner_token=handle.owner_token)

def told():
    return any(line.watch and line.watch.active for homes in lines.values() for line in homes.values())

def sleeps():
    # not in the middle of a call: SQLite's own mutexes would stay locked in the child
    return any(line.row and line.due != float("inf") for homes in lines.values() for line in homes.values())

other = SqlLockProvider(address, holder="other")
held = other.acquire("fork", ttl=60)
thread = threading.Thread(target=wait)
thread.start()
while not (told() or provider._room.wakeups is None and sleeps()):
    thread.join(0.005)
child = os.fork()
if child == 0:
    # it does not stand behind its parent's thread, and has its own sessions
    try:
        provider.require_acquire("fork", ttl=60, wait=0.3)
    except LockTimeout:
        free = provider.require_acquire("free", ttl=60, wait=5)
        provider.release("free", owner_token=free.owner_token)
        print("child timed out", flush=True)
    provider.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
other.release("fork", owner_token=held.owner_token)
thread.join()
provider.close()
other.close()
"""


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="forking with threads is a warning there")
def test_a_child_of_a_waiting_process_waits_by_itself(table_setting: Setting) -> None:
    if table_setting.kind.asyncio:
        pytest.skip("a child has no loop")
    out = told_by(script(FORK, table_setting.address)).splitlines()
    assert out == ["child timed out", "parent was served"]


EXIT = """
import asyncio, sys, threading
from sqllocks import AsyncSqlLockProvider, SqlLockProvider

address, form = sys.argv[1:]

def blocking():
    waiter = SqlLockProvider(address)
    threading.Thread(target=lambda: waiter.require_acquire("exit", ttl=60, wait=60), daemon=True).start()
    return waiter

async def awaited():
    waiter = AsyncSqlLockProvider(address)
    task = asyncio.create_task(waiter.require_acquire("exit", ttl=60, wait=60))
    await asyncio.sleep(0.3)
    try:
        return await asyncio.wait_for(asyncio.shield(task), 0.1)
    except TimeoutError:
        task.cancel()
    await waiter.aclose()

if form == "asyncio":
    asyncio.run(awaited())
else:
    waiter = blocking()
    threading.Event().wait(0.4)
print("ended")
"""


def test_a_process_may_end_while_it_waits(table_setting: Setting) -> None:
    form = SqlLockProvider if not table_setting.kind.asyncio else AsyncSqlLockProvider
    client = table_setting.client()
    owner = client.acquire("exit", ttl=TTL).owner_token
    ended = script(EXIT, table_setting.address, "asyncio" if form is AsyncSqlLockProvider else "blocking")
    out, _ = ended.communicate(timeout=PATIENCE)
    assert (out, ended.returncode) == ("ended\n", 0)
    client.release("exit", owner_token=owner)
    handle = client.require_acquire("exit", ttl=TTL, wait=1)
    client.release("exit", owner_token=handle.owner_token)
    if table_setting.kind.server == "postgresql":
        until(lambda: table_setting.waited() == [], within=2)
