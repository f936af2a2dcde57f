"""How long a question is asked again before its answer counts."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from sqllocks.backends.base import Answers
from sqllocks.backends.port import Clock
from sqllocks.dialects.base import Fault, FaultKind, Verdict, Want
from sqllocks.policy import RETRY_PAUSE, VICTIM_PATIENCE

__all__ = ["Patience", "all_done", "insist", "persist"]

T = TypeVar("T")

# a kept session may have ended while nobody looked, or lead to a server that was demoted since
_NEEDS_A_FRESH_SESSION = (FaultKind.GONE, FaultKind.READ_ONLY)
_MAY_HAVE_BEEN_CARRIED_OUT = (FaultKind.GONE, FaultKind.OTHER)
_OPEN = (Verdict.SKIPPED, Verdict.MISSING)


class Patience:
    """The time that one call may spend on asking again, and whether an answer of it was lost."""

    __slots__ = ("_began", "_clock", "_pause", "_progress", "_seconds", "doubt", "renewed")

    def __init__(self, clock: Clock, seconds: float, *, pause: float = RETRY_PAUSE) -> None:
        self._clock = clock
        self._pause = pause
        self._seconds = seconds
        self._began: float | None = None
        self._progress: float | None = None
        self.renewed = False
        """Whether a fresh session was tried."""
        self.doubt = False
        """Whether a statement may have been carried out without an answer."""

    def allows(self, fault: Fault) -> bool:
        """Return whether a statement that was refused may be sent again."""
        spent = self._spent
        if fault.kind is FaultKind.CONFLICT:
            # a victim is nobody's prisoner: others got through, and it soon does
            self._progress = spent
        elif fault.kind is not FaultKind.LOCKED:
            return False
        elif self._progress is None:
            return spent < self._seconds
        return spent < max(self._seconds, min(self._progress + self._seconds, VICTIM_PATIENCE))

    @property
    def over(self) -> bool:
        return self._spent >= self._seconds

    @property
    def _spent(self) -> float:
        """Seconds since the first answer: to open a connection or to queue for one is not to ask."""
        now = self._clock.now()
        if self._began is None:
            self._began = now
        return now - self._began

    async def pause(self) -> None:
        """Wait a little, with jitter so that contenders do not march in step."""
        # S311: nothing secret
        await self._clock.sleep(self._pause * random.uniform(0.5, 1.5))  # noqa: S311

    async def again(self, fault: Fault) -> None:
        """Return when a statement that failed so may be sent again, after a pause; raises the fault if not.

        Again after a conflict, and once more on a fresh session. A statement whose answer was lost is sent
        again too: each is safe to repeat, because grants are told apart by their attempt. ``doubt`` says
        that this happened.
        """
        if fault.sent and fault.kind in _MAY_HAVE_BEEN_CARRIED_OUT:
            self.doubt = True
        if self.allows(fault):
            await self.pause()
        elif fault.kind in _NEEDS_A_FRESH_SESSION and fault.sent and not self.renewed:
            self.renewed = True
        else:
            raise fault


async def persist(patience: Patience, send: Callable[[], Awaitable[T]]) -> T:
    """Send until it is carried out, as far as ``patience`` goes."""
    while True:
        try:
            return await send()
        except Fault as fault:
            await patience.again(fault)


async def insist(
    patience: Patience,
    send: Callable[[Sequence[Want]], Awaitable[Answers]],
    wants: Sequence[Want],
    first: Answers | Fault | None = None,
    *,
    skipped: bool = True,
) -> Answers:
    """Send a batch, and what was skipped again, until every key has an answer or patience is over.

    ``first`` is what became of it where it was sent once already. A key that is still ``SKIPPED`` at the end
    has had its row locked by an open transaction all the time; without ``skipped`` it counts at once.
    """
    answers: Answers = {}
    pending = wants
    while True:
        if isinstance(first, Fault):
            await patience.again(first)
        elif first is not None:
            answers.update(first)
            pending = [want for want in pending if first[want.key].verdict in _OPEN]
            if not pending or not skipped or patience.over:
                return answers
            await patience.pause()
        try:
            first = await send(pending)
        except Fault as fault:
            first = fault


def all_done(answers: Answers, wants: Sequence[Want]) -> bool:
    """Return whether every element was carried out, as it nearly always is."""
    for want in wants:  # noqa: SIM110 - a generator costs more, and this is done for each call
        if answers[want.key].verdict is not Verdict.DONE:
            return False
    return True
