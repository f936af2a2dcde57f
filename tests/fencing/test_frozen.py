"""A holder that is stopped inside its guarded transaction, in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sqllocks import BackendUnavailable
from tests.conformance.calls import TTL
from tests.conformance.polling import Stopwatch, throughout, until
from tests.conformance.processes import ROOT
from tests.conformance.subject import Subject
from tests.fencing.application import Application
from tests.fencing.test_guard import taken

SHORT = 1.2


class Holder:
    """The other process."""

    def __init__(self, subject: Subject, key: str, ttl: float, at_most: float | None, name: str) -> None:
        form = "asyncio" if subject.kind.asyncio else "blocking"
        bound = "-" if at_most is None else str(at_most)
        arguments = [subject.address, form, key, str(ttl), bound, name]
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.fencing.holder", *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        said = self.hear()
        assert said.startswith("guarded"), said
        self.token = int(said.split()[1])

    def hear(self) -> str:
        """Return the next line that it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def go_on(self) -> str:
        """Let it write, and return how that went."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.hear()

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)


@contextmanager
def holding(subject: Subject, key: str, ttl: float, at_most: float | None, name: str) -> Iterator[Holder]:
    """Start a holder, and end it with the case."""
    holder = Holder(subject, key, ttl, at_most, name)
    try:
        yield holder
    finally:
        holder.process.kill()
        holder.process.communicate()


# a process that stands still or is gone runs neither driver nor form: one of each server is enough
def test_a_frozen_holder_keeps_the_row_and_may_write(
    application: Application, blocking_table_subject: Subject
) -> None:
    name = application.account(blocking_table_subject.key())
    with holding(blocking_table_subject, name, SHORT, None, name) as holder:
        holder.freeze()
        throughout(3 * SHORT, lambda: not taken(blocking_table_subject.b, name))
        holder.thaw()
        assert holder.go_on() == "written"
        assert application.balance(name) == 1
        later = blocking_table_subject.b.acquire(name, ttl=TTL)
        assert later.acquired is True
        assert later.fencing_token > holder.token


def test_at_most_frees_the_row_of_a_frozen_holder(application: Application, network_subject: Subject) -> None:
    if network_subject.kind.server != "postgresql":
        pytest.skip("the limit is PostgreSQL's")
    name = application.account(network_subject.key())
    at_most = 1.5
    with holding(network_subject, name, SHORT, at_most, name) as holder:
        holder.freeze()
        watch = Stopwatch()
        won = until(lambda: acquired(network_subject, name), within=10, what="the row is free")
        assert 0.8 * at_most < watch.seconds < at_most + 2
        assert won.fencing_token > holder.token
        holder.thaw()
        assert holder.go_on().startswith("refused")
        assert application.balance(name) == 0


def acquired(subject: Subject, key: str) -> Any:
    """Return a true handle, or nothing."""
    return subject.b.acquire(key, ttl=TTL) or None


def test_a_killed_holder_frees_the_row_at_once(
    application: Application, blocking_table_subject: Subject
) -> None:
    name = application.account(blocking_table_subject.key())
    with holding(blocking_table_subject, name, SHORT, None, name) as holder:
        holder.process.kill()
        holder.process.wait(10)

        def free() -> bool:
            try:
                return blocking_table_subject.b.acquire(name, ttl=TTL).acquired
            except BackendUnavailable:
                return False

        until(free, within=SHORT + 3, what="the row is free")
    assert application.balance(name) == 0
