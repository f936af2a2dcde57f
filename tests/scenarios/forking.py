"""A program that forks while it uses a provider; prints what went wrong, and nothing where nothing did.

It is a program of its own, so that each side leaves through the real end of an interpreter.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable

from sqlalchemy import make_url

from tests.conformance.kinds import KINDS
from tests.conformance.observing import Observer
from tests.conformance.polling import until
from tests.scenarios import jobs
from tests.scenarios.arena import sessions
from tests.scenarios.targets import Target

TTL = 30.0
LIMIT = 20.0


def main(address: str, bound: str, held: str, free: str) -> None:
    """Fork with a client in use, let the child use and leave it in each way, and go on using it."""
    url = make_url(address)
    kind = next(kind for kind in KINDS if f"{kind.server}+{kind.driver}" == url.drivername)
    observer = Observer(kind, url)
    # an engine's pool keeps connections, that of a URL does not
    target = Target(address, setup=("SELECT 1",) if bound == "engine" else ())
    others = seen(observer)
    client = jobs.clients.of(target)
    handle = client.acquire(held, ttl=TTL)
    assert handle.acquired
    # one that was just closed may be seen a moment longer
    until(lambda: len(seen(observer) - others) == int(kind.network), what="not one session")
    mine = seen(observer) - others
    for leave in (by_the_end, after_close, at_once):
        print(in_a_child(lambda: use(target, held, free), leave), end="")  # noqa: T201 - for the test
        # the very connection from before the fork answers, and answers what was asked
        extended = client.extend(held, owner_token=handle.owner_token, ttl=TTL)
        assert extended is not None, leave
        assert extended.fencing_token == handle.fencing_token
        assert client.locked(held)
        assert not client.locked(free)
        until(lambda: seen(observer) - others == mine, what=f"other sessions than before, {leave}")


def seen(observer: Observer) -> set[int]:
    """Return the server's sessions on the database; keeps no connection that a child could inherit."""
    try:
        return sessions(observer)
    finally:
        observer.close()


def in_a_child(act: Callable[[], str], leave: Callable[[], None]) -> str:
    """Fork, act and leave there; return what the child told, once it has ended."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ours)
        os.write(theirs, act().encode())
        os.close(theirs)
        leave()
    os.close(theirs)
    with os.fdopen(ours) as pipe:
        told = pipe.read()
    until(lambda: os.waitpid(child, os.WNOHANG)[0] == child, within=LIMIT, what="the child does not end")
    return told


def use(target: Target, held: str, free: str) -> str:
    """Use the provider of the parent in the child; return a traceback, or nothing."""
    try:
        client = jobs.clients.of(target)
        assert not client.acquire(held, ttl=TTL), "the parent's lease excluded nobody"
        handle = client.acquire(free, ttl=TTL)
        assert handle.acquired
        assert client.extend(free, owner_token=handle.owner_token, ttl=TTL) is not None
        assert client.release(free, owner_token=handle.owner_token) is True
    except BaseException:
        return traceback.format_exc()
    return ""


def by_the_end() -> None:
    """Leave as a program does, with all that an interpreter cleans up."""
    sys.exit(0)


def after_close() -> None:
    """Leave after closing the provider."""
    jobs.close_all()
    sys.exit(0)


def at_once() -> None:
    """Leave without any clean-up, as a process of multiprocessing does."""
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
