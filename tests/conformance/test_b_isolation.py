"""B. What the application's settings and other people's transactions do to an acquire."""

from __future__ import annotations

import pytest
from sqlalchemy import make_url

from sqllocks import BackendUnavailable, LockError, LockHandle, LockNotAcquired
from tests.conformance.calls import ALL, TTL
from tests.conformance.driving import Call, Client, together
from tests.conformance.polling import Stopwatch, quickly
from tests.conformance.subject import Subject, on_connect
from tests.conformance.victims import always_a_victim, victim_at_first

PROMPT = 0.5
LEVELS = ["REPEATABLE READ", "SERIALIZABLE"]


def one_winner(outcomes: list[object]) -> None:
    """Assert one grant, refusals otherwise, and no error."""
    assert [outcome for outcome in outcomes if not isinstance(outcome, LockHandle)] == []
    assert sum(bool(outcome) for outcome in outcomes) == 1


def races(subject: Subject, *clients: Client) -> None:
    """Let clients race for keys that are unused, then released, then expired."""
    for _ in range(3):
        key = subject.key()
        for state in ("unused", "released", "expired"):
            calls = [Call(client, "acquire", key, {"ttl": TTL}) for client in clients for _ in range(4)]
            outcomes = together(calls)
            one_winner(outcomes)
            if state == "unused":
                winner = next(outcome for outcome in outcomes if outcome)
                assert subject.a.release(key, owner_token=winner.owner_token) is True
            else:
                subject.expire(key)


@pytest.mark.parametrize("level", LEVELS)
def test_c029_an_engine_at_a_snapshot_level_changes_nothing(network_subject: Subject, level: str) -> None:
    engines = [network_subject.engine(isolation_level=level) for _ in range(2)]
    races(network_subject, *[network_subject.client(engine) for engine in engines])


def test_c029_an_engine_at_serializable_changes_nothing_on_sqlite(sqlite_subject: Subject) -> None:
    engines = [sqlite_subject.engine(isolation_level="SERIALIZABLE") for _ in range(2)]
    races(sqlite_subject, *[sqlite_subject.client(engine) for engine in engines])


@pytest.mark.parametrize("level", LEVELS)
def test_c029_a_session_whose_default_is_a_snapshot_level_changes_nothing(
    network_subject: Subject, level: str
) -> None:
    scope = "SESSION CHARACTERISTICS AS" if network_subject.kind.server == "postgresql" else "SESSION"
    clients = []
    for _ in range(2):
        engine = network_subject.engine()
        on_connect(engine, f"SET {scope} TRANSACTION ISOLATION LEVEL {level}")
        clients.append(network_subject.client(engine))
    races(network_subject, *clients)


@pytest.mark.parametrize("state", ["unused", "expired"])
def test_c029_a_deadlock_victim_tries_again(network_subject: Subject, state: str) -> None:
    client = network_subject.client(table="victims")
    client.call("create_table")
    key = network_subject.key()
    if state == "expired":
        client.acquire(key, ttl=TTL)
        network_subject.observer.expire(key, table="victims")
    with victim_at_first(network_subject.observer, "victims", times=2):
        assert client.acquire(key, ttl=TTL).acquired is True


def test_c029_an_eternal_victim_gets_one_library_error(network_subject: Subject) -> None:
    client = network_subject.client(table="victims")
    client.call("create_table")
    watch = Stopwatch()
    with (
        always_a_victim(network_subject.observer, "victims"),
        pytest.raises(BackendUnavailable),
    ):
        client.acquire(network_subject.key(), ttl=TTL)
    assert watch.seconds < 5


@pytest.mark.parametrize("state", ["unused", "released", "expired"])
def test_c029_a_locked_sqlite_file_gives_one_library_error(sqlite_subject: Subject, state: str) -> None:
    key = sqlite_subject.key()
    if state != "unused":
        handle = sqlite_subject.a.acquire(key, ttl=TTL)
        if state == "released":
            sqlite_subject.a.release(key, owner_token=handle.owner_token)
        else:
            sqlite_subject.expire(key)
    with sqlite_subject.observer.holding(key), pytest.raises(BackendUnavailable) as caught:
        sqlite_subject.a.acquire(key, ttl=TTL)
    assert caught.value.status == 503
    assert sqlite_subject.a.acquire(key, ttl=TTL).acquired is True


def promptly(subject: Subject, key: str) -> object:
    """Return the outcome of an acquire that must not take long."""
    outcomes: list[object] = []

    def attempt() -> float:
        watch = Stopwatch()
        try:
            outcomes.append(subject.b.acquire(key, ttl=TTL))
        except LockError as error:
            outcomes.append(error)
        return watch.seconds

    quickly(attempt, within=PROMPT)
    return outcomes[-1]


def test_c030_acquire_answers_at_once_for_a_held_and_a_released_key(subject: Subject) -> None:
    key = subject.key()
    held = subject.a.acquire(key, ttl=TTL)
    outcome = promptly(subject, key)
    assert isinstance(outcome, LockHandle)
    assert outcome.acquired is False
    subject.a.release(key, owner_token=held.owner_token)
    outcome = promptly(subject, key)
    assert isinstance(outcome, LockHandle)
    assert outcome.acquired is True


@pytest.mark.parametrize("state", ["held", "released", "expired"])
def test_c030_acquire_waits_for_no_row_lock(network_subject: Subject, state: str) -> None:
    key = network_subject.key()
    handle = network_subject.a.acquire(key, ttl=TTL)
    if state == "released":
        network_subject.a.release(key, owner_token=handle.owner_token)
    elif state == "expired":
        network_subject.expire(key)
    before = network_subject.stored(key)
    with network_subject.observer.holding(key):
        outcome = promptly(network_subject, key)
        assert isinstance(outcome, LockHandle), outcome
        assert outcome.acquired is False
    assert outcome.fencing_token == handle.fencing_token
    assert network_subject.stored(key) == before


def test_c030_acquire_waits_for_no_row_that_is_being_inserted(network_subject: Subject) -> None:
    key = network_subject.key()
    with network_subject.observer.inserting(key):
        outcome = promptly(network_subject, key)
        # nobody can see what that transaction will leave: refused or unknown, never granted
        assert isinstance(outcome, BackendUnavailable) or (
            isinstance(outcome, LockHandle) and not outcome.acquired
        ), outcome
    assert network_subject.b.acquire(key, ttl=TTL).acquired is True


def test_c030_acquire_waits_for_no_locked_file(sqlite_subject: Subject) -> None:
    held, free = sqlite_subject.key("held"), sqlite_subject.key("free")
    sqlite_subject.a.acquire(held, ttl=TTL)
    with sqlite_subject.observer.holding(held):
        outcome = promptly(sqlite_subject, held)
        assert isinstance(outcome, LockHandle), outcome
        assert outcome.acquired is False
        assert isinstance(promptly(sqlite_subject, free), BackendUnavailable)


@pytest.mark.parametrize("method", ALL)
def test_c031_a_database_that_is_down_is_not_taken_for_busy(table_subject: Subject, method: str) -> None:
    client = table_subject.client(table_subject.unreachable)
    watch = Stopwatch()
    with pytest.raises(BackendUnavailable) as caught:
        client.call(method, "key", **ALL[method])
    assert not isinstance(caught.value, LockNotAcquired)
    assert (caught.value.code, caught.value.status) == ("LOCK_BACKEND_UNAVAILABLE", 503)
    assert caught.value.__cause__ is not None
    assert watch.seconds < 5


def test_c031_an_unreachable_server_keeps_its_password(network_subject: Subject) -> None:
    url = make_url(network_subject.unreachable).set(password="p@ss:w/rd#1")
    client = network_subject.client(url.render_as_string(hide_password=False))
    with pytest.raises(BackendUnavailable) as caught:
        client.acquire("key", ttl=TTL)
    for shown in (str(caught.value), repr(caught.value), repr(caught.value.details)):
        assert "p@ss:w/rd#1" not in shown
        assert "p%40ss" not in shown


def test_c031_a_database_that_only_reads_is_not_taken_for_busy(network_subject: Subject) -> None:
    engine = network_subject.engine()
    if network_subject.kind.server == "postgresql":
        on_connect(engine, "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
    else:
        on_connect(engine, "SET SESSION TRANSACTION READ ONLY")
    client = network_subject.client(engine)
    with pytest.raises(LockError) as caught:
        client.acquire(network_subject.key(), ttl=TTL)
    assert not isinstance(caught.value, LockNotAcquired)
    assert caught.value.status in {501, 503}
