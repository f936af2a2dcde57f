"""Take names over and over again, in other processes, and tell exactly what happened."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count, pairwise

from sqllocks import BackendUnavailable, LockHandle
from sqllocks.schema import from_microseconds, to_microseconds
from tests.conformance.driving import Client
from tests.conformance.observing import Observer
from tests.scenarios import jobs
from tests.scenarios.targets import Target

TTL = 0.1
RETRY = 0.003
OUTAGE_RETRY = 0.02


@dataclass(slots=True)
class Grant:
    """One grant as its holder saw it; moments are of the monotonic clock, all before or after a call."""

    key: str
    owner: str
    token: int
    asked: float
    """Before the acquire was sent."""
    won: float
    """After its answer came."""
    expiries: list[datetime]
    """What the row's expiry was set to, one after the other."""
    over: float = float("inf")
    """When the holder knew that it had the lock no more."""
    released: bool = False


@dataclass(slots=True)
class Report:
    """What one process did."""

    grants: list[Grant] = field(default_factory=list)
    doubtful: dict[str, str] = field(default_factory=dict)
    """Owners of calls whose answer never came, and what came instead."""
    starved: list[str] = field(default_factory=list)
    """Owners refused after more than the ttl: what they asked for may have come and gone."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What an onlooker saw of one row at one moment."""

    asked: float
    key: str
    owner: str
    attempt: str
    token: int
    expires_at: datetime
    held: bool


def churn_on(target: Target, keys: Sequence[str], *, rounds: int, offset: int, limit: float) -> Report:
    """Do the same as ``churn``, as a job."""
    return churn(jobs.clients.of(target), keys, rounds=rounds, offset=offset, limit=limit)


def churn(client: Client, keys: Sequence[str], *, rounds: int, offset: int, limit: float) -> Report:
    """Be granted a key ``rounds`` times; release a third of them, let the others expire."""
    report = Report()
    until = time.monotonic() + limit
    for number in range(rounds):
        key = keys[(number + offset) % len(keys)]
        grant = _granted(client, key, f"{os.getpid()}-{offset}-{number}", report, until)
        try:
            _use(client, grant, report, how=number % 3)
        except BackendUnavailable as error:
            report.doubtful[grant.owner] = f"{error!r} after {error.__cause__!r}"
    return report


def _granted(client: Client, key: str, owner: str, report: Report, until: float) -> Grant:
    for attempt in count():
        asker = f"{owner}-{attempt}"
        asked = time.monotonic()
        assert asked < until, f"{key!r} was not granted in time"
        try:
            handle = client.acquire(key, ttl=TTL, owner_token=asker)
        except BackendUnavailable as error:
            report.doubtful[asker] = f"{error!r} after {error.__cause__!r}"
            time.sleep(OUTAGE_RETRY)
            continue
        answered = time.monotonic()
        if handle:
            grant = Grant(key, asker, handle.fencing_token, asked, answered, [handle.expires_at])
            report.grants.append(grant)
            return grant
        if answered - asked >= TTL:
            report.starved.append(asker)
        time.sleep(RETRY)
    raise AssertionError


def _use(client: Client, grant: Grant, report: Report, *, how: int) -> None:
    if how == 0:
        grant.released = client.release(grant.key, owner_token=grant.owner)
        grant.over = time.monotonic()
        return
    if how == 1:
        _extend(client, grant, report)
    while True:
        time.sleep(TTL + RETRY)
        if _extend(client, grant, report) is None:
            grant.over = time.monotonic()
            return


def _extend(client: Client, grant: Grant, report: Report) -> LockHandle | None:
    asked = time.monotonic()
    handle = client.extend(grant.key, owner_token=grant.owner, ttl=TTL)
    if handle is not None:
        assert handle.fencing_token == grant.token
        grant.expiries.append(handle.expires_at)
    elif time.monotonic() - asked >= TTL:
        report.starved.append(grant.owner)
    return handle


def sample(observer: Observer) -> list[Sample]:
    """Look at all rows at once."""
    statement = (
        "SELECT lock_key, owner_token, attempt, fencing_token, expires_at,"
        f" CASE WHEN attempt <> '' AND expires_at > {observer.clock} THEN 1 ELSE 0 END FROM core_locks"
    )
    asked = time.monotonic()
    return [
        Sample(asked, key, owner, attempt, int(token), _instant(expires_at), bool(held))
        for key, owner, attempt, token, expires_at, held in observer.rows(statement)
    ]


def _instant(value: int | datetime) -> datetime:
    return from_microseconds(value if isinstance(value, int) else to_microseconds(value))


def check_tokens(grants: Iterable[Grant]) -> None:
    """No two grants of a key share a token, and whoever asked after another had won got a higher one."""
    by_key: dict[str, list[Grant]] = defaultdict(list)
    for grant in grants:
        by_key[grant.key].append(grant)
    for ordered in by_key.values():
        ordered.sort(key=lambda grant: grant.token)
        for earlier, later in pairwise(ordered):
            assert earlier.token < later.token, (earlier, later)
        latest_asked = float("-inf")
        for grant in ordered:
            assert grant.won > latest_asked, f"a grant that was asked for later has a lower token: {grant}"
            latest_asked = max(latest_asked, grant.asked)


def check_samples(samples: Iterable[Sample], reports: Sequence[Report]) -> None:
    """Every row that was seen is what one grant wrote, and nobody is seen to hold what he reported lost."""
    known = {(grant.key, grant.owner): grant for report in reports for grant in report.grants}
    doubtful = {owner for report in reports for owner in report.doubtful}
    starved = {owner for report in reports for owner in report.starved}
    newest: dict[str, int] = defaultdict(int)
    for seen in samples:
        assert seen.token >= newest[seen.key], f"a token went back: {seen}"
        newest[seen.key] = seen.token
        grant = known.get((seen.key, seen.owner))
        if grant is None:
            assert seen.owner in doubtful | starved, f"nobody was granted this: {seen}"
            continue
        assert seen.token == grant.token, (seen, grant)
        if seen.attempt and seen.owner not in doubtful | starved:
            assert seen.expires_at in grant.expiries, (seen, grant)
        if seen.asked > grant.over:
            assert not seen.held, f"still held, though its owner had reported it lost: {seen}, {grant}"
