"""Keeps one lease renewed in a thread of its own while a command runs."""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable
from dataclasses import dataclass

from sqllocks.errors import LockError
from sqllocks.protocols import LockProvider
from sqllocks.runtime import clock

__all__ = ["Ending", "Held", "Keeper", "trusted_until"]

LONGEST_MARGIN = 1.0
FIRST_RETRY = 1.0
"""Longest pause before a failed renewal is tried again for the first time, in seconds."""


def trusted_until(sent: float, ttl: float) -> float:
    """Return until when a lease may be trusted that was asked for at ``sent``, by the local clock.

    The margin is for clocks that do not run at the same speed, and for the way to stopping work.
    """
    return sent + ttl - min(LONGEST_MARGIN, ttl / 10)


@dataclass(frozen=True, slots=True)
class Held:
    """A lease that was granted to this process."""

    lock_key: str
    owner_token: str
    fencing_token: int
    ttl: float
    sent: float
    """The moment before the grant, or its last renewal, was asked for."""


class Ending(enum.Enum):
    """What became of the lease in the end."""

    RELEASED = "given back"
    LOST = "it was over before"
    UNKNOWN = "no answer"


class Keeper:
    """Renews a lease at a third of its ttl, and knows until when it may be trusted.

    Whoever holds the lease looks at ``over`` and at ``deadline`` without any help of the thread: a
    renewal may hang in a dead network, and the whole process may have been frozen.
    """

    def __init__(
        self,
        provider: LockProvider,
        held: Held,
        *,
        warn: Callable[[str], None],
        on_loss: Callable[[], None],
    ) -> None:
        self._provider = provider
        self._held = held
        self._warn = warn
        self._on_loss = on_loss
        self._sent = held.sent
        self._lost = False
        self._ended = threading.Event()
        self._ending = Ending.UNKNOWN
        # daemon: one that hangs in a dead network must not keep the process
        self._thread = threading.Thread(target=self._keep, name="sqllocks-keeper", daemon=True)

    def start(self) -> None:
        """Begin to renew."""
        self._thread.start()

    @property
    def deadline(self) -> float:
        """The moment by the local clock until which the lease may be trusted."""
        return trusted_until(self._sent, self._held.ttl)

    @property
    def over(self) -> bool:
        """Whether the lease may not be trusted any more."""
        return self._lost or clock.now() >= self.deadline

    @property
    def reason(self) -> str:
        """Why it is over, for people."""
        if self._lost:
            return "it expired, or somebody took or broke it"
        return "it could not be renewed in time"

    def end(self, timeout: float) -> Ending:
        """Give the lease back; wait at most ``timeout`` seconds for the answer."""
        self._ended.set()
        if self._thread.ident is None:
            self._thread.start()
        self._thread.join(timeout)
        if self._thread.is_alive() and not self.over:
            self._warn(f"{self._held.lock_key!r} was not given back in {timeout:g} s, its ttl ends it")
        return self._ending

    def _keep(self) -> None:
        due, retry = self._sent + self._held.ttl / 3, self._first_retry
        # looked at each second: while the machine sleeps only the clock of the deadline goes on
        while not self._ended.wait(min(max(due - clock.now(), 0), 1)):
            sent = clock.now()
            if self.over:
                break
            if sent < due:
                continue
            if self._renew(sent):
                due, retry = sent + self._held.ttl / 3, self._first_retry
            elif self._lost:
                break
            else:
                due, retry = clock.now() + retry, min(retry * 2, self._held.ttl / 10)
        self._ended.wait()
        self._give_back()

    @property
    def _first_retry(self) -> float:
        return min(FIRST_RETRY, self._held.ttl / 10)

    def _renew(self, sent: float) -> bool:
        """Ask for a renewal; return whether it was given."""
        held = self._held
        try:
            handle = self._provider.extend(held.lock_key, owner_token=held.owner_token, ttl=held.ttl)
        except LockError as error:
            left = max(self.deadline - clock.now(), 0)
            self._warn(f"{held.lock_key!r} was not renewed, {left:.1f} s are left: {error.message}")
            return False
        if handle is None:
            self._lost = True
            self._on_loss()
            return False
        self._sent = sent
        return True

    def _give_back(self) -> None:
        held = self._held
        try:
            mine = self._provider.release(held.lock_key, owner_token=held.owner_token)
        except LockError as error:
            self._warn(f"{held.lock_key!r} was not given back, its ttl ends it: {error.message}")
        else:
            self._ending = Ending.RELEASED if mine else Ending.LOST
