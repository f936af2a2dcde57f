"""S25. Only the database's clock decides, whatever zones, summer times and wrong clocks stand around it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, timedelta
from typing import Any

import pytest
from sqlalchemy import Date, DateTime, Engine, Interval, MetaData, Time

from sqllocks import LockHandle, LockInfo
from sqllocks.dialects import leases_for
from sqllocks.dialects.base import Statement, Want
from sqllocks.schema import core_locks
from tests.conformance.kinds import Kind
from tests.scenarios import jobs
from tests.scenarios.arena import SERVERS, Arena
from tests.scenarios.jobs import wait_until
from tests.scenarios.targets import Target
from tests.scenarios.workers import Worker, end

CLOSE = timedelta(milliseconds=10)
LATE = timedelta(seconds=0.3)
LONG = 60.0


@dataclass(frozen=True)
class Profile:
    """Where a process believes to be, and how wrong its clock is."""

    zone: str
    offset: str
    """The zone's offset, for servers without zone tables; half the year it is even right."""
    ahead: float


PROFILES = (
    Profile("America/New_York", "-05:00", 0.0),
    Profile("Asia/Kolkata", "+05:30", 3600.0),
    Profile("Europe/Berlin", "+01:00", -3600.0),
    Profile("Pacific/Chatham", "+12:45", 0.0),
)


@pytest.fixture
def travellers() -> Iterator[list[Worker]]:
    """Return a process for each profile."""
    workers = [Worker(zone=profile.zone, ahead=profile.ahead) for profile in PROFILES]
    yield workers
    end(workers)


def target_of(arena: Arena, profile: Profile, kind: Kind, zones: set[str], *, by_arguments: bool) -> Target:
    """Return a target whose application has set each session's zone, in one of two ways."""
    if kind.server == "sqlite":
        return arena.target(kind)
    if kind.server != "postgresql":
        zone = profile.zone if profile.zone in zones else profile.offset
        setting = f"SET time_zone = '{zone}'"
        if by_arguments:
            return arena.target(kind, connect_args=(("init_command", setting),))
        return arena.target(kind, setup=(setting,))
    if not by_arguments:
        return arena.target(kind, setup=(f"SET TIME ZONE '{profile.zone}'",))
    if kind.driver == "asyncpg":
        return arena.target(kind, connect_args=(("server_settings", Settings(TimeZone=profile.zone)),))
    return arena.target(kind, connect_args=(("options", f"-c TimeZone={profile.zone}"),))


class Settings(dict[str, str]):
    """Settings that can be part of a target."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self.items()))


def known_zones(arena: Arena) -> set[str]:
    """Return the zones of the profiles that the server has a table of."""
    if arena.server not in {"mysql", "mariadb"}:
        return set()
    statement = "SELECT convert_tz('2000-01-01', '+00:00', :zone)"
    return {each.zone for each in PROFILES if arena.observer.rows(statement, zone=each.zone) != [(None,)]}


# -- jobs


def local_clock() -> tuple[float, str]:
    """Return this process's wall clock and the name of its zone."""
    return time.time(), time.tzname[0]


def hold(target: Target, key: str, *, ttl: float, then: float | None = None) -> tuple[LockHandle, LockInfo]:
    """Acquire, renew where ``then`` says for how long, and look at the row."""
    client = jobs.clients.of(target)
    handle = client.acquire(key, ttl=ttl)
    assert handle.acquired
    if then is not None:
        renewed = client.extend(key, owner_token=handle.owner_token, ttl=then)
        assert renewed is not None
        handle = renewed
    info = client.inspect(key)
    assert info is not None
    return handle, info


def contend(target: Target, key: str) -> tuple[LockHandle, LockHandle, LockInfo]:
    """Try with zero wait, then wait; return both answers and the row that the grant wrote."""
    client = jobs.clients.of(target)
    first = client.acquire(key, ttl=LONG)
    handle = first if first.acquired else client.require_acquire(key, ttl=LONG, wait=10)
    info = client.inspect(key)
    assert info is not None
    return first, handle, info


# -- what must hold


def check_takeover(
    held: tuple[LockHandle, LockInfo], met: tuple[LockHandle, LockHandle, LockInfo], *, ttl: float
) -> None:
    """A contender was refused until the expiry, and granted right after it, by the database's clock."""
    handle, before = held
    first, granted, after = met
    assert before.acquired_at is not None
    assert after.acquired_at is not None
    assert after.expires_at is not None
    assert granted.acquired
    assert granted.fencing_token > handle.fencing_token
    assert handle.expires_at <= after.acquired_at <= handle.expires_at + LATE
    assert abs(after.expires_at - after.acquired_at - timedelta(seconds=LONG)) <= CLOSE
    if not first.acquired:
        assert first.expires_at == handle.expires_at
    # a starved process may be late for the shortest one, and was then granted after its expiry
    assert not first.acquired or ttl < 1


@pytest.mark.parametrize("turn", [0, 1])
@pytest.mark.parametrize("server", SERVERS)
def test_s25_the_databases_clock_decides(arena: Arena, travellers: list[Worker], turn: int) -> None:
    zones = known_zones(arena)
    targets = [
        target_of(
            arena,
            profile,
            arena.kinds[(number + turn) % len(arena.kinds)],
            zones,
            by_arguments=(number + turn) % 2 == 0,
        )
        for number, profile in enumerate(PROFILES)
    ]
    for worker, target, profile in zip(travellers, targets, PROFILES, strict=True):
        moment, _ = worker.run(local_clock)
        assert abs(moment - time.time() - profile.ahead) < 5
        worker.run(jobs.warm_up, target)
    everybody = list(zip(travellers, targets, strict=True))
    neighbours = everybody[1:] + everybody[:1]
    for ttl, then in ((0.3, None), (1.5, None), (0.4, 1.5)):
        keys = [arena.key(f"{ttl}") for _ in everybody]
        holding = [
            worker.start(hold, target, key, ttl=ttl, then=then)
            for (worker, target), key in zip(everybody, keys, strict=True)
        ]
        held = [pending.result() for pending in holding]
        for handle, info in held:
            assert info.acquired_at is not None
            if then is None:  # not rounded to whole seconds
                assert abs(handle.expires_at - info.acquired_at - timedelta(seconds=ttl)) <= CLOSE
        contending = [
            worker.start(contend, target, key) for (worker, target), key in zip(neighbours, keys, strict=True)
        ]
        met = [pending.result() for pending in contending]
        for each, answer in zip(held, met, strict=True):
            check_takeover(each, answer, ttl=then or ttl)
        for (worker, target), (handle, _), (_, granted, _) in zip(everybody, held, met, strict=True):
            key, mine, theirs = handle.lock_key, handle.owner_token, granted.owner_token
            assert worker.run(jobs.call, target, "extend", key, owner_token=mine, ttl=LONG) is None
            assert worker.run(jobs.call, target, "release", key, owner_token=theirs) is True


@pytest.mark.parametrize("server", SERVERS)
def test_s25_everybody_reads_the_same_instants(arena: Arena, travellers: list[Worker]) -> None:
    zones = known_zones(arena)
    listed: list[Sequence[LockInfo]] = []
    prefix = arena.key("listed")
    kinds = [arena.kinds[number % len(arena.kinds)] for number in range(len(PROFILES))]
    targets = [
        target_of(arena, profile, kind, zones, by_arguments=number % 2 == 0)
        for number, (profile, kind) in enumerate(zip(PROFILES, kinds, strict=True))
    ]
    everybody = list(zip(travellers, targets, strict=True))
    for worker, target in everybody:
        worker.run(jobs.warm_up, target)
    begun = [
        worker.start(hold, target, f"{prefix}:{number}", ttl=LONG)
        for number, (worker, target) in enumerate(everybody)
    ]
    now = arena.observer.now()
    held = [pending.result() for pending in begun]
    for worker, target in everybody:
        for handle, _ in held:
            refused = worker.run(jobs.call, target, "acquire", handle.lock_key, ttl=LONG)
            assert not refused.acquired
            assert abs(refused.expires_at - handle.expires_at) <= CLOSE
        listed.append(worker.run(jobs.call, target, "list_locks", prefix=prefix))
    for infos in listed:
        assert [info.lock_key for info in infos] == [handle.lock_key for handle, _ in held]
        for info, (handle, _) in zip(infos, held, strict=True):
            stored = arena.observer.stored(info.lock_key)
            assert stored is not None
            assert info.expires_at is not None
            assert info.acquired_at is not None
            assert info.held
            assert info.expires_at.tzinfo is info.acquired_at.tzinfo is UTC
            assert abs(info.expires_at - handle.expires_at) <= CLOSE
            assert abs(info.expires_at - stored.expires_at) <= CLOSE
            assert abs(info.acquired_at - stored.acquired_at) <= CLOSE
            assert abs(info.expires_at - now - timedelta(seconds=LONG)) < timedelta(seconds=20)
    for handle, _ in held:
        assert arena.client.release(handle.lock_key, owner_token=handle.owner_token) is True


# clocks that stand still in a transaction or statement, or speak the session's zone
FORBIDDEN = re.compile(
    r"\b(now|curdate|curtime|utc_timestamp|utc_date|utc_time|unix_timestamp|transaction_timestamp"
    r"|statement_timestamp|julianday|unixepoch)\s*\(|\bcurrent_(timestamp|date|time)|\blocaltime",
    re.IGNORECASE,
)


@pytest.mark.parametrize("server", SERVERS)
def test_s25_no_statement_carries_an_instant_or_asks_a_clock_that_stands_still(arena: Arena) -> None:
    engine = arena.engine(arena.target())
    assert isinstance(engine, Engine)
    engine.connect().close()
    leases = leases_for(engine.dialect, core_locks(MetaData()))
    statements = [each for each in vars(leases).values() if isinstance(each, Statement)]
    assert {each.name for each in statements} >= {"claim", "renew", "release", "break", "read", "list"}
    for statement in statements:
        compiled: Any = statement.clause.compile(dialect=engine.dialect)
        assert not FORBIDDEN.search(str(compiled)), statement.name
        for bind in getattr(compiled, "binds", {}).values():
            assert not isinstance(bind.type, DateTime | Date | Time | Interval), (statement.name, bind)
    wants = [Want("key", "owner", "attempt", 1_500_000, "holder")]
    parameters = str(dict(leases.batch(wants)))
    assert "datetime" not in parameters
    assert not [number for number in re.findall(r"\d+", parameters) if is_present(int(number))]
    wait_until(time.monotonic() + 0.01)
    assert str(dict(leases.batch(wants))) == parameters


def is_present(number: int) -> bool:
    """Tell whether a number is a present moment in any usual unit since the epoch."""
    return any(abs(number / unit - time.time()) < 10 * 365 * 86400 for unit in (1, 10**3, 10**6, 10**9))
