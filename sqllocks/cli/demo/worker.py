"""One worker of the demo, as a process: waits for the key, works under it, and tells what it does.

It is written as a naive program would be: it never asks itself whether it was frozen meanwhile. What
stops its late write is the token.
"""

from __future__ import annotations

import os
import random
import sys
import threading
from typing import NoReturn

from sqlalchemy.exc import SQLAlchemyError

from sqllocks.cli.demo.events import TTL, Event, Kind, Settings
from sqllocks.cli.demo.ledger import Ledger
from sqllocks.errors import LockError
from sqllocks.model import LockHandle
from sqllocks.policy import margin
from sqllocks.protocols import LockProvider
from sqllocks.providers import SqlLockProvider
from sqllocks.runtime import clock

__all__ = ["main"]

STEPS = 3
STEP = 0.15
"""Seconds of work between two writes."""
REST = (0.05, 0.25)
LOOK = (0.03, 0.12)
AFTER_TROUBLE = 0.2


def _trusted_until(sent: float) -> float:
    """Return until when a lease may be trusted that was asked for at ``sent``, by the local clock."""
    return sent + TTL - margin(round(TTL * 1_000_000))


class _Worker:
    def __init__(self, settings: Settings, locks: LockProvider, ledger: Ledger) -> None:
        self._settings = settings
        self._locks = locks
        self._ledger = ledger
        self._ended = threading.Event()

    def run(self) -> None:
        self._tell(Kind.READY)
        sys.stdin.readline()  # all begin together
        # daemon: it waits for the end of a pipe
        threading.Thread(target=self._watch_for_the_end, daemon=True).start()
        while not self._ended.is_set():
            try:
                self._take_turn()
            except (LockError, SQLAlchemyError) as error:
                text = str(error).splitlines()[0]
                self._tell(Kind.TROUBLE, text=f"{type(error).__name__}: {text}")
                self._ended.wait(AFTER_TROUBLE)

    def _take_turn(self) -> None:
        key = self._settings.key
        if self._locks.locked(key):  # a look writes nothing
            self._pause(LOOK)
            return
        sent = clock.now()
        handle = self._locks.acquire(key, ttl=TTL)
        if handle:
            self._tell(Kind.GRANTED, handle.fencing_token, until=_trusted_until(sent))
            self._work(handle)
            self._pause(REST)

    def _work(self, handle: LockHandle) -> None:
        for _ in range(STEPS):
            if not self._write(handle) or not self._renew(handle):
                return
            self._ended.wait(STEP)
        if self._write(handle):
            self._release(handle)

    def _write(self, handle: LockHandle) -> bool:
        taken = self._ledger.write(handle.fencing_token)
        self._tell(Kind.WROTE if taken else Kind.REFUSED, handle.fencing_token)
        return taken

    def _renew(self, handle: LockHandle) -> bool:
        sent = clock.now()
        if self._locks.extend(self._settings.key, owner_token=handle.owner_token, ttl=TTL) is None:
            self._tell(Kind.LOST, handle.fencing_token)
            return False
        self._tell(Kind.RENEWED, handle.fencing_token, until=_trusted_until(sent))
        return True

    def _release(self, handle: LockHandle) -> None:
        sent = clock.now()
        mine = self._locks.release(self._settings.key, owner_token=handle.owner_token)
        self._tell(Kind.RELEASED if mine else Kind.LOST, handle.fencing_token, at=sent)

    def _pause(self, between: tuple[float, float]) -> None:
        self._ended.wait(random.uniform(*between))  # noqa: S311 - nothing secret

    def _tell(
        self, kind: Kind, token: int = 0, *, at: float | None = None, until: float = 0.0, text: str = ""
    ) -> None:
        moment = clock.now() if at is None else at
        event = Event(kind, self._settings.worker, os.getpid(), moment, token, until, text)
        # one write: a process that is killed leaves no half of a line
        os.write(sys.stdout.fileno(), event.line().encode())

    def _watch_for_the_end(self) -> None:
        """End with the demo, also when it is killed: its end of the pipe closes then."""
        sys.stdin.read()
        self._ended.set()


def main(provider: type[SqlLockProvider] = SqlLockProvider) -> NoReturn:
    """Work until stdin ends; its first line are the settings."""
    settings = Settings.of_line(sys.stdin.readline())
    locks = provider(
        settings.url,
        holder=f"demo worker {settings.worker}",
        table=settings.table,
        schema=settings.schema,
    )
    with locks, Ledger(settings.url, settings.ledger, settings.schema) as ledger:
        _Worker(settings, locks, ledger).run()
    # everything is closed; taking the interpreter apart would only keep the demo waiting
    os._exit(0)


if __name__ == "__main__":
    main()
