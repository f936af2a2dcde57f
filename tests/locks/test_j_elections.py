"""J and K. One contract for every elector: memory, and on the servers all strategies in both forms.

The first cases take session locks over all drivers (as ``test_i_locks``), leases and "auto" over one driver
for each form of each server, because what differs there is not the driver, and leases over SQLite. What the
core alone decides runs on memory and one driver of each server.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import text

from sqllocks import (
    BackendUnavailable,
    BackendUnsupported,
    LeaseLost,
    LockValidationError,
    MemoryElector,
    SchemaMissing,
    SqlElector,
    Term,
)
from sqllocks.core import electing
from sqllocks.dialects.base import Statement
from tests.conformance.kinds import KINDS, MORE_KINDS, Kind
from tests.conformance.places import Places
from tests.conformance.polling import Stopwatch, until
from tests.locks.candidates import Candidate, Chamber
from tests.locks.processes import worker
from tests.locks.subject import LockSubject

FAST: dict[str, Any] = {"retry": 0.05, "lease": 6, "heartbeat": 1}
SESSION = [(kind, "session") for kind in (*KINDS, *MORE_KINDS) if kind.network]
OTHERS = [
    (kind, strategy)
    for kind in KINDS
    for strategy in ("lease", "auto")
    if (kind.driver, strategy)
    in {("psycopg", "lease"), ("asyncpg", "auto"), ("aiomysql", "lease"), ("pymysql", "auto")}
    or (kind.server == "sqlite" and (strategy == "auto") is kind.asyncio)
]
STANDINGS = [(kind, "memory") for kind in KINDS if not kind.table] + SESSION + OTHERS


@dataclass
class Standing:
    """A subject whose electors have a strategy."""

    subject: LockSubject
    strategy: str

    def elector(self, **options: Any) -> Any:
        """Return an elector that is quick."""
        return self.subject.elector(strategy=self.strategy, **{**FAST, **options})

    def electors(self, number: int, **options: Any) -> list[Any]:
        """Return electors that exclude each other: on memory it is one."""
        if not self.subject.kind.table:
            return [self.elector(**options)] * number
        return [self.elector(**options) for _ in range(number)]

    def candidate(self, elector: Any, key: str, **options: Any) -> Candidate:
        """Return a candidate, to be entered."""
        return Candidate(self.subject, elector, key, **options)


FEW = [
    (kind, strategy)
    for kind, strategy in STANDINGS
    if (kind.driver, kind.server, strategy)
    in {
        ("", "memory", "memory"),
        ("asyncpg", "postgresql", "session"),
        ("pymysql", "mysql", "session"),
        ("aiomysql", "mariadb", "session"),
        ("pysqlite", "sqlite", "lease"),
        ("aiomysql", "mysql", "lease"),
    }
]
"""Memory and one of each server, for what the core decides."""


def named(standing: tuple[Kind, str]) -> str:
    kind, strategy = standing
    return f"{kind.name}-{strategy}"


@pytest.fixture(params=STANDINGS, ids=named)
def standing(
    request: pytest.FixtureRequest, places: Places, lockers: dict[Any, list[Any]]
) -> Iterator[Standing]:
    """Return one backend × driver × form × strategy."""
    kind, strategy = request.param
    with ExitStack() as stack:
        yield Standing(LockSubject(places.of(kind), stack, lockers), strategy)


@pytest.fixture(params=FEW, ids=named)
def few(request: pytest.FixtureRequest, places: Places, lockers: dict[Any, list[Any]]) -> Iterator[Standing]:
    """Return memory, or one of a server."""
    kind, strategy = request.param
    with ExitStack() as stack:
        yield Standing(LockSubject(places.of(kind), stack, lockers), strategy)


def test_c115_118_136_one_candidate_leads_until_it_is_stopped(standing: Standing) -> None:
    key = standing.subject.key()
    elector = standing.elector()
    watch = Stopwatch()
    with standing.candidate(elector, key) as candidate:
        term = candidate.leads()
        assert watch.seconds < 10
        assert (term.key, term.lost) == (key, False)
        term.check()
        leader = standing.subject.do(elector.leader(key))
        assert (leader.lock_key, leader.fencing_token) == (key, term.fencing_token)
        told: list[str] = []
        term.on_lost(lambda: told.append(key))
        watch = Stopwatch()
        candidate.stop()
        assert watch.seconds < 3
    # cancelled, waited for, freed; the outcome is the cancel where there is one
    assert term.lost
    with pytest.raises(LeaseLost):
        term.check()
    assert len(candidate.ended) == 1
    assert type(candidate.outcome).__name__ == (
        "CancelledError" if standing.subject.kind.asyncio else "NoneType"
    )
    assert standing.subject.do(elector.leader(key)) is None


def test_c116_133_135_candidates_lead_one_at_a_time_with_rising_tokens(standing: Standing) -> None:
    key, chamber = standing.subject.key(), Chamber()
    with ExitStack() as stack:
        candidates = [
            stack.enter_context(standing.candidate(each, key, chamber=chamber, term=0.02))
            for each in standing.electors(3)
        ]
        until(lambda: chamber.rounds >= 4, within=20, what="several terms")
    assert chamber.most == 1
    terms = sorted(
        (began, ended, term.fencing_token)
        for each in candidates
        for began, ended, term in zip(each.began, each.ended, each.terms, strict=True)
    )
    for (_, ended, token), (began, _, next_token) in pairwise(terms):
        assert ended <= began
        assert token < next_token


def test_c117_keys_have_leaders_of_their_own(few: Standing) -> None:
    elector, keys = few.elector(), [few.subject.key(each) for each in "ab"]
    with few.candidate(elector, keys[0]) as one, few.candidate(elector, keys[1]) as two:
        one.leads()
        two.leads()
        assert one.leading
        assert two.leading


def test_c119_a_candidate_that_never_led_stops_at_once(few: Standing) -> None:
    key = few.subject.key()
    leader, other = few.electors(2)
    with few.candidate(leader, key) as first:
        first.leads()
        with few.candidate(other, key) as second:
            until(lambda: second._task is not None or not few.subject.kind.asyncio, what="its start")
            watch = Stopwatch()
            second.stop()
            assert watch.seconds < 3
        assert second.terms == []
        assert first.leading
        assert not first.terms[0].lost


def test_c120_136_a_callback_that_returns_ends_its_term_and_stands_again(few: Standing) -> None:
    key = few.subject.key()
    elector = few.elector()
    with few.candidate(elector, key, term=0.05) as candidate:
        candidate.leads(2)
        assert candidate.terms[0].lost
        assert candidate.terms[1].fencing_token > candidate.terms[0].fencing_token


def test_c121_a_callback_that_returns_at_once_does_not_spin(few: Standing) -> None:
    key, chamber = few.subject.key(), Chamber()
    one, two = few.electors(2, retry=0.3)
    with (
        few.candidate(one, key, chamber=chamber, term=0) as first,
        few.candidate(two, key, chamber=chamber, term=0) as second,
    ):
        until(lambda: first.terms and second.terms, within=20, what="a chance for each")
        watch = Stopwatch()
        before = chamber.rounds
        until(lambda: chamber.rounds > before + 3, within=20)
    # two candidates, each with a pause of at least three quarters of retry after each term
    assert chamber.rounds - before <= 4 + 2 * watch.seconds / 0.2


def test_c125_a_lost_term_is_waited_for_before_the_candidate_stands_again(few: Standing) -> None:
    key = few.subject.key()
    elector = few.elector(heartbeat=0.3, lease=3)
    if not few.subject.kind.table:
        return  # nobody can take a key from memory
    with few.candidate(elector, key, stubborn=True) as candidate:
        term = candidate.leads()
        lose(few, key)
        until(lambda: term.lost, within=6, what="the loss")
        assert not candidate.may_end.wait(0.3)
        assert candidate.leading
        assert len(candidate.terms) == 1
        candidate.may_end.set()
        again = candidate.leads(2)
        assert again.fencing_token > term.fencing_token
    assert candidate.chamber.most == 1


def lose(standing: Standing, key: str) -> None:
    """End the term of a key from outside."""
    subject = standing.subject
    assert subject.do(subject.leases(namespace="election:").break_lock(key)) is True


def test_c128_137_an_error_of_the_callback_frees_the_key_and_leaves_run(standing: Standing) -> None:
    key = standing.subject.key()
    elector = standing.elector()
    with standing.candidate(elector, key, term=0.02, error=ZeroDivisionError("mine")) as candidate:
        candidate.leads()
        until(candidate.done, what="the error to leave run")
        assert isinstance(candidate.outcome, ZeroDivisionError)
        assert candidate.terms[0].lost
        assert standing.subject.do(elector.leader(key)) is None
    with standing.candidate(elector, key) as candidate:
        candidate.leads()


def test_c128_on_error_gets_it_and_the_candidate_stands_again(few: Standing) -> None:
    key = few.subject.key()
    errors: list[BaseException] = []
    elector = few.elector(on_error=errors.append)
    with few.candidate(elector, key, term=0.02, error=ZeroDivisionError("mine")) as candidate:
        candidate.leads(2)
    assert [type(error) for error in errors[:1]] == [ZeroDivisionError]


def test_c127_election_and_loss_are_logged_once_with_the_key(
    server_subject: LockSubject, caplog: pytest.LogCaptureFixture
) -> None:
    subject = server_subject
    key = subject.key()
    elector = subject.elector(strategy="session", **FAST)
    with caplog.at_level(logging.INFO, "sqllocks"), Candidate(subject, elector, key) as candidate:
        term = candidate.leads()
        session = subject.carrier("election:" + key)
        assert session is not None
        subject.kill(session)
        until(lambda: term.lost, within=5, what="the loss")
        candidate.leads(2)
    records = [record for record in caplog.records if repr(key) in record.getMessage()]
    elected = [record for record in records if "elected" in record.getMessage()]
    lost = [record for record in records if record.levelno == logging.WARNING]
    assert [record.levelname for record in elected] == ["INFO", "INFO"]
    assert len(lost) == 1
    assert "lost" in lost[0].getMessage()


def test_c122_124_a_leader_whose_session_ended_is_told_and_a_standby_leads(
    driver_subject: LockSubject,
) -> None:
    subject = driver_subject
    key, chamber = subject.key(), Chamber()
    one, two = (subject.elector(strategy="session", retry=0.2) for _ in range(2))
    with Candidate(subject, one, key, chamber=chamber) as first:
        term = first.leads()
        with Candidate(subject, two, key, chamber=chamber) as second:
            session = subject.carrier("election:" + key)
            assert session is not None
            watch = Stopwatch()
            subject.kill(session)
            until(lambda: (term.lost and not first.leading) or len(first.terms) > 1, within=5)
            until(lambda: second.terms or len(first.terms) > 1, within=5, what="the next leader")
            assert watch.seconds < 4  # the lease is 15 s, the heartbeat 5 s
    assert chamber.most == 1


def test_c122_a_standby_takes_over_from_a_process_that_died(server_subject: LockSubject) -> None:
    subject = server_subject
    key = subject.key()
    process = worker(subject)
    process.ask("stand", key=key, term=60, options={"strategy": "session"})
    elector = subject.elector(strategy="session", retry=0.2)
    until(lambda: subject.do(elector.leader(key)), within=15, what="the leader")
    token = subject.do(elector.leader(key)).fencing_token
    with Candidate(subject, elector, key) as candidate:
        process.kill()
        watch = Stopwatch()
        assert candidate.leads().fencing_token > token
        assert watch.seconds < 5


@pytest.mark.parametrize("strategy", ["session", "lease", "auto"])
def test_c126_a_candidate_goes_on_while_the_database_is_away(
    server_subject: LockSubject, strategy: str, caplog: pytest.LogCaptureFixture
) -> None:
    subject = server_subject
    elector = subject.elector(subject.unreachable, strategy=strategy, retry=0.05)
    key = subject.key()
    with caplog.at_level(logging.WARNING, "sqllocks"), Candidate(subject, elector, key) as candidate:
        until(lambda: any(key in record.getMessage() for record in caplog.records), within=10)
        assert not candidate.done()
        candidate.stop()
    assert not isinstance(candidate.outcome, BackendUnavailable)
    assert candidate.terms == []
    assert sum("goes on trying" in record.getMessage() for record in caplog.records) == 1


@pytest.mark.parametrize("strategy", ["session", "lease"])
def test_c126_a_missing_table_at_the_first_contact_leaves_run(
    server_subject: LockSubject, strategy: str
) -> None:
    subject = server_subject
    elector = subject.elector(strategy=strategy, table="no_such_table")
    with Candidate(subject, elector, subject.key()) as candidate:
        until(candidate.done, within=10, what="the error")
        assert isinstance(candidate.outcome, SchemaMissing)


def test_c126_a_table_that_goes_away_later_does_not_end_a_candidate(server_subject: LockSubject) -> None:
    subject = server_subject
    first, second = (subject.elector(strategy="session", table="elected", **FAST) for _ in range(2))
    subject.do(subject.leases(table="elected").create_table())
    key = subject.key()
    with Candidate(subject, first, key) as leader, Candidate(subject, second, key) as standby:
        until(lambda: leader.terms or standby.terms, within=10)
        until(lambda: first._campaign._contact and second._campaign._contact, what="the first contact")
        subject.observer.rows("DROP TABLE elected")
        subject.do(subject.leases(table="elected").create_table())
        until(lambda: len(leader.terms) + len(standby.terms) > 1, within=20, what="another term")
        assert not leader.done()
        assert not standby.done()


@pytest.mark.parametrize("key", ["k" * 250, 7], ids=["long", "number"])
def test_a_wrong_key_leaves_run(few: Standing, key: Any) -> None:
    with few.candidate(few.elector(), key) as candidate:
        until(candidate.done, what="the error")
        assert isinstance(candidate.outcome, LockValidationError)


def test_c129_a_resignation_that_hangs_is_given_up_and_the_session_dropped(
    server_subject: LockSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = server_subject
    monkeypatch.setattr(electing, "RELEASE_LIMIT", 0.3)
    elector = subject.elector(strategy="session", **{**FAST, "lease": 3})
    key = subject.key()
    with Candidate(subject, elector, key) as candidate:
        candidate.leads()
        sql = elector._locker._sessions[0]._sql
        call = "pg_sleep(30)" if subject.kind.server == "postgresql" else "SLEEP(30)"
        good = sql.release
        sql.release = Statement("release", text(f"SELECT {call}"))
        watch = Stopwatch()
        candidate.leaving.set()
        until(lambda: subject.carrier("election:" + key) is None, within=10, what="the end of the session")
        sql.release = good
        candidate.leaving.clear()
        candidate.leads(2)
        assert watch.seconds < 15


def test_c131_one_session_carries_all_terms_of_an_elector(driver_subject: LockSubject) -> None:
    subject = driver_subject
    elector = subject.elector(strategy="session", **FAST)
    keys = [subject.key(each) for each in "abc"]
    with ExitStack() as stack:
        for key in keys:
            stack.enter_context(Candidate(subject, elector, key)).leads()
        assert len({subject.carrier("election:" + key) for key in keys}) == 1


def test_c133_a_term_guards_the_transaction_of_its_callback(form_subject: LockSubject) -> None:
    subject = form_subject
    engine: Any = subject.engine()
    for strategy in ("session", "lease"):
        elector = subject.elector(strategy=strategy, **FAST)
        with Candidate(subject, elector, subject.key()) as candidate:
            term = candidate.leads()
            guard(subject, engine, term)
            candidate.stop()
            with pytest.raises(LeaseLost):
                guard(subject, engine, term)


def guard(subject: LockSubject, engine: Any, term: Any) -> None:
    async def in_a_task() -> None:
        async with engine.begin() as connection:
            await term.guard(connection)

    if subject.kind.asyncio:
        subject.run(in_a_task())
        return
    with engine.begin() as connection:
        term.guard(connection)


def test_wait_lost_tells_of_the_end_of_a_term(few: Standing) -> None:
    key = few.subject.key()
    with few.candidate(few.elector(), key) as candidate:
        term = candidate.leads()
        assert few.subject.do(term.wait_lost(0.01)) is False
        waiting = few.subject.start(lambda: term.wait_lost(20))
        candidate.stop()
        assert waiting.result(10) is True


def test_a_clean_hand_over_is_quick(server_subject: LockSubject) -> None:
    subject = server_subject
    key = subject.key()
    # PostgreSQL tells; elsewhere the candidate's own retry decides
    retry = 20 if subject.kind.server == "postgresql" else 0.2
    one, two = (subject.elector(strategy="session", retry=retry) for _ in range(2))
    with Candidate(subject, one, key) as first:
        first.leads()
        with Candidate(subject, two, key) as second:
            until(lambda: waits(subject, two, key), within=10, what="the standby")
            watch = Stopwatch()
            first.stop()
            second.leads(within=10)
            assert watch.seconds < 5


def waits(subject: LockSubject, elector: Any, key: str) -> bool:
    """Return whether a candidate stands in line and, where the server tells, listens."""
    line = elector._locker._room.lines._lines.get("election:" + key)
    if not line:
        return False
    (only,) = line.values()
    watch = only.watch
    return subject.kind.server != "postgresql" or (watch is not None and watch.active)


def test_close_ends_the_term_of_a_callback_that_goes_on(few: Standing) -> None:
    key = few.subject.key()
    elector = few.elector()
    with few.candidate(elector, key, stubborn=True) as candidate:
        term = candidate.leads()
        few.subject.close(elector, timeout=0.1)
        assert term.lost
        with pytest.raises(LeaseLost):
            term.check()
        candidate.halt()
        candidate.may_end.set()
        candidate.stop()


def test_sqlite_elects_with_leases_only(sqlite_subject: LockSubject) -> None:
    subject = sqlite_subject
    with pytest.raises(BackendUnsupported, match="strategy='lease'"):
        subject.elector(strategy="session")
    key = subject.key()
    for strategy in ("auto", "lease"):
        elector = subject.elector(strategy=strategy, retry=0.05)
        with Candidate(subject, elector, key) as candidate:
            candidate.leads()
            assert subject.do(elector.leader(key)).kind == "lease"


WRONG: list[dict[str, Any]] = [
    {"strategy": "row"},
    {"strategy": None},
    {"retry": 0},
    {"retry": -1},
    {"retry": float("nan")},
    {"lease": 10, "heartbeat": 5},
    {"prefix": "p" * 300},
    {"naming": "md5"},
]


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_a_wrong_argument_is_told_before_any_sql(wrong: dict[str, Any]) -> None:
    with pytest.raises(LockValidationError):
        SqlElector("postgresql+psycopg://nobody@127.0.0.1:1/none", **wrong)


def test_a_blocking_elector_refuses_a_coroutine_function() -> None:
    async def lead(term: Term) -> None:
        """Would never be awaited."""

    with MemoryElector() as elector:
        for callback in (lead, partial(lead)):
            with pytest.raises(TypeError, match="is a coroutine function: use an Async elector"):
                elector.run("key", callback)
        assert elector.leader("key") is None
