"""Cores, backends and databases with one mistake each, which the explorer has to find."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from sqllocks.backends.base import Answers, LeaseBackend
from sqllocks.backends.lease_table import LeaseTable
from sqllocks.backends.port import IO, Alarm, Event, Session
from sqllocks.core.leases import Leases
from sqllocks.dialects.base import Answer, Fault, Verdict, Want
from sqllocks.errors import BackendUnavailable
from sqllocks.model import LockHandle, Seconds
from tests.exploration.families import Family
from tests.exploration.port import SteppingPort
from tests.exploration.programs import Makes
from tests.exploration.table import Row, Rules, held

__all__ = [
    "Careless",
    "Forgetful",
    "Greedy",
    "Impatient",
    "Necromancer",
    "Pessimist",
    "Stuck",
    "Usurper",
    "answers_for_itself",
    "confuses_attempts",
    "forgets_to_give_back",
    "gives_up_renewals",
    "holds_on_to_the_dead",
    "releases_whatever_its_owner_has",
    "sees_its_owner_as_itself",
    "sends_each_claim_anew",
    "trusts_lost_answers",
]

T = TypeVar("T")


# -- databases


class Necromancer(Rules):
    """A renewal finds leases that are over."""

    def owns(self, row: Row, want: Want, now: int) -> bool:
        return row.owner == want.owner and want.attempt in ("", row.attempt) and row.attempt != ""


class Greedy(Rules):
    """A claim takes rows that somebody's transaction has pinned."""

    def takes(self, row: Row, now: int, *, pinned: bool) -> bool:
        return not held(row, now)


class Usurper(Rules):
    """A claim takes rows that are held."""

    def takes(self, row: Row, now: int, *, pinned: bool) -> bool:
        return not pinned


class Stuck(Rules):
    """A grant takes the clock for its token, and the clock stands still."""

    def granted(self, row: Row | None, want: Want, now: int) -> Row:
        return super().granted(row, want, now)._replace(token=now)


class Careless(Rules):
    """A renewal or release reaches a lease whoever holds it."""

    def owns(self, row: Row, want: Want, now: int) -> bool:
        return held(row, now)


# -- cores


class Pessimist(Leases):
    """A database that does not answer is reported as a busy key."""

    async def acquire(self, lock_key: str, *, ttl: Seconds, owner_token: str | None = None) -> LockHandle:
        try:
            return await super().acquire(lock_key, ttl=ttl, owner_token=owner_token)
        except BackendUnavailable:
            return LockHandle(False, lock_key, owner_token or "", datetime.now(UTC), 0)


class Impatient(Leases):
    """An extension takes the grant for granted: it is lost where the answer is."""

    async def extend(self, lock_key: str, *, owner_token: str, ttl: Seconds) -> LockHandle | None:
        try:
            return await super().extend(lock_key, owner_token=owner_token, ttl=ttl)
        except BackendUnavailable:
            return None


# -- ports


class Forgetful:
    """A port that does not run clean-ups."""

    def __init__(self, port: SteppingPort) -> None:
        self._port = port

    def now(self) -> float:
        return self._port.now()

    async def sleep(self, seconds: float) -> None:
        await self._port.sleep(seconds)

    def event(self) -> Event:
        return self._port.event()

    def alarm(self, seconds: float, ring: Callable[[], None]) -> Alarm:
        return self._port.alarm(seconds, ring)

    async def use(self, work: Callable[[Session], Coroutine[Any, Any, T]]) -> T:
        return await self._port.use(work)

    async def shielded(self, work: Coroutine[Any, Any, T]) -> T | None:
        work.close()
        return None


def forgets_to_give_back(port: SteppingPort, family: Family) -> tuple[IO, LeaseBackend]:
    return Forgetful(port), LeaseTable(port, family.capabilities)


# -- backends


def _with(backend: type[LeaseTable]) -> Makes:
    return lambda port, family: (port, backend(port, family.capabilities))


class _OwnerIsEnough(LeaseTable):
    async def claim(self, wants: Sequence[Want]) -> Answers:
        answers, rows = await super().claim(wants), await self.read([want.key for want in wants])
        mine = [want for want in wants if want.key in rows and rows[want.key].owner == want.owner]
        return answers | {want.key: answers[want.key]._replace(verdict=Verdict.DONE) for want in mine}


class _AnewEachTime(LeaseTable):
    _sent = 0

    async def claim(self, wants: Sequence[Want]) -> Answers:
        self._sent += 1
        return await super().claim([want._replace(attempt=f"{want.attempt}{self._sent}") for want in wants])


class _OneAttemptForAll(LeaseTable):
    async def claim(self, wants: Sequence[Want]) -> Answers:
        return await super().claim([want._replace(attempt=want.owner) for want in wants])

    async def release(self, wants: Sequence[Want]) -> Answers:
        return await super().release([want._replace(attempt=want.attempt and want.owner) for want in wants])


class _WithoutAttempt(LeaseTable):
    async def release(self, wants: Sequence[Want]) -> Answers:
        return await super().release([want._replace(attempt="") for want in wants])


class _Optimist(LeaseTable):
    async def release(self, wants: Sequence[Want]) -> Answers:
        try:
            return await super().release(wants)
        except Fault:
            return {want.key: Answer(Verdict.DONE) for want in wants}


class _Quitter(LeaseTable):
    async def renew(self, wants: Sequence[Want], **options: Any) -> Answers:
        try:
            return await super().renew(wants, **options)
        except Fault:
            return {want.key: Answer(Verdict.REFUSED) for want in wants}


class _Vain(LeaseTable):
    async def claim(self, wants: Sequence[Want]) -> Answers:
        answers = await super().claim(wants)
        return {key: answer._replace(token=answer.token + 1) for key, answer in answers.items()}


class _Undead(LeaseTable):
    async def claim(self, wants: Sequence[Want]) -> Answers:
        try:
            return await super().claim(wants)
        except GeneratorExit:
            await self.release(wants)
            raise


sees_its_owner_as_itself = _with(_OwnerIsEnough)
sends_each_claim_anew = _with(_AnewEachTime)
confuses_attempts = _with(_OneAttemptForAll)
releases_whatever_its_owner_has = _with(_WithoutAttempt)
trusts_lost_answers = _with(_Optimist)
gives_up_renewals = _with(_Quitter)
answers_for_itself = _with(_Vain)
holds_on_to_the_dead = _with(_Undead)
