"""I. Session locks as every driver of every server and memory has to give them.

These cases run on all drivers, because what they need of one differs: how its socket is found, whether it
tells the number of its session, how it speaks of NULL, and what a cancel does to it. Cases about the
server's own behaviour (``test_i_server``, ``test_i_keys``) run on one driver of each server.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from sqllocks import LeaseLost, LockNotAcquired, LockTimeout
from tests.conformance.polling import Stopwatch, until
from tests.conformance.processes import race
from tests.locks.processes import Pool
from tests.locks.subject import QUICK, LockSubject


def test_c095_a_held_key_is_refused_without_an_error(subject: LockSubject) -> None:
    key = subject.key()
    lock = subject.do(subject.one.try_lock(key))
    assert subject.do(subject.two.try_lock(key)) is None
    assert subject.do(lock.unlock()) is True
    again = subject.do(subject.two.try_lock(key))
    assert again.fencing_token > lock.fencing_token
    assert subject.do(again.unlock()) is True


def test_c096_other_keys_are_free(subject: LockSubject) -> None:
    first, second = subject.key("a"), subject.key("b")
    locks = [subject.do(subject.one.try_lock(first)), subject.do(subject.two.try_lock(second))]
    assert all(subject.do(lock.unlock()) for lock in locks)


def test_c097_a_second_unlock_has_no_effect(subject: LockSubject) -> None:
    key = subject.key()
    lock = subject.do(subject.one.try_lock(key))
    assert subject.do(lock.unlock()) is True
    other = subject.do(subject.one.try_lock(key))
    assert subject.do(lock.unlock()) is True
    other.check()
    assert subject.do(other.held()) is True
    assert subject.do(subject.two.try_lock(key)) is None
    assert subject.do(other.unlock()) is True


def test_c098_a_waiter_gets_the_key_after_its_release_only(subject: LockSubject) -> None:
    key = subject.key()
    lock = subject.do(subject.one.try_lock(key))
    waiter = subject.start(lambda: subject.two.lock(key, wait=20))
    assert subject.do(subject.two.try_lock(key)) is None
    assert not waiter.done()
    assert subject.do(lock.unlock()) is True
    after = waiter.result(20)
    assert after.fencing_token > lock.fencing_token
    assert subject.do(after.unlock()) is True


def test_c098_a_wait_that_ran_out_holds_nothing(subject: LockSubject) -> None:
    key = subject.key()
    lock = subject.do(subject.one.try_lock(key))
    watch = Stopwatch()
    with pytest.raises(LockTimeout, match=key) as caught:
        subject.do(subject.two.lock(key, wait=0.03))
    assert 0.03 <= watch.seconds < 5
    if subject.kind.table:
        assert "'one' since" in str(caught.value)
    with pytest.raises(LockNotAcquired):
        subject.do(subject.two.lock(key, wait=0))
    assert subject.do(lock.unlock()) is True
    again = subject.do(subject.one.try_lock(key))
    assert subject.do(again.unlock()) is True


def test_c101_all_locks_of_a_locker_share_one_session(driver_subject: LockSubject) -> None:
    subject = driver_subject
    keys = [subject.key(str(number)) for number in range(5)]
    locks = [subject.do(subject.one.try_lock(key)) for key in keys]
    sessions = {subject.carrier(key) for key in keys}
    assert len(sessions) == 1
    assert None not in sessions
    other = subject.do(subject.two.try_lock(subject.key()))
    assert subject.carrier(other.key) not in sessions
    assert all(subject.do(lock.unlock()) for lock in [*locks, other])
    assert [subject.carrier(key) for key in keys] == [None] * 5


def test_c111_a_lock_is_not_reentrant(subject: LockSubject) -> None:
    key = subject.key()
    lock = subject.do(subject.one.try_lock(key))
    assert subject.do(subject.one.try_lock(key)) is None
    waiter = subject.start(lambda: subject.one.lock(key, wait=20))
    assert subject.do(subject.one.try_lock(key)) is None
    assert subject.do(lock.unlock()) is True
    second = waiter.result(20)
    assert subject.do(subject.two.try_lock(key)) is None
    assert subject.do(second.unlock()) is True
    third = subject.do(subject.two.try_lock(key))  # nothing was counted twice
    assert subject.do(third.unlock()) is True


def test_c112_the_session_of_a_held_lock_is_not_in_a_transaction(driver_subject: LockSubject) -> None:
    subject = driver_subject
    lock = subject.do(subject.one.try_lock(subject.key()))
    assert subject.do(lock.held()) is True
    assert subject.observer.open_transactions() == 0
    assert subject.do(lock.unlock()) is True


def test_c114_held_is_answered_by_the_server_for_this_session(driver_subject: LockSubject) -> None:
    subject = driver_subject
    locker = subject.locker()
    key = subject.key()
    lock = subject.do(locker.try_lock(key))
    assert subject.do(lock.held()) is True
    session = subject.carrier(key)
    assert session is not None
    subject.kill(session)
    until(lambda: lock.lost, what="the end of the session", within=10)
    assert subject.do(lock.held()) is False
    again = subject.do(locker.try_lock(key))  # on another session
    assert subject.do(lock.held()) is False
    assert subject.do(lock.unlock()) is False
    assert subject.do(again.held()) is True
    assert subject.carrier(key) not in (session, None)
    assert subject.do(again.unlock()) is True


def test_c122_a_session_that_the_server_ends_loses_its_locks_at_once_and_is_told_once(
    driver_subject: LockSubject,
) -> None:
    subject = driver_subject
    locker = subject.locker(**QUICK)
    keys = [subject.key(str(number)) for number in range(3)]
    locks = [subject.do(locker.try_lock(key)) for key in keys]
    told: list[str] = []
    for lock in locks:
        lock.on_lost(lambda key=lock.key: told.append(key))
    session = subject.carrier(keys[0])
    assert session is not None
    watch = Stopwatch()
    subject.kill(session)
    until(lambda: len(told) == 3, what="the loss", within=5)
    # its socket tells, a heartbeat would have come later
    assert watch.seconds < 3
    assert sorted(told) == sorted(keys)
    for lock in locks:
        with pytest.raises(LeaseLost, match="session"):
            lock.check()
        assert subject.do(lock.unlock()) is False
    late: list[str] = []
    locks[0].on_lost(lambda: late.append("late"))
    assert late == ["late"]
    # the row says "held" for a while: who has the very server-side lock knows better
    after = subject.do(subject.two.lock(keys[0], wait=10))
    assert after.fencing_token > locks[0].fencing_token
    assert subject.do(after.unlock()) is True
    assert len(told) == 3


def test_the_block_gives_back_and_tells_of_a_loss(subject: LockSubject) -> None:
    key = subject.key()

    async def in_a_task() -> None:
        async with await subject.one.lock(key) as lock:
            lock.check()
            assert await subject.one.try_lock(key) is None
        with pytest.raises(LeaseLost, match="given back"):
            lock.check()

    if subject.kind.asyncio:
        subject.run(in_a_task())
    else:
        with subject.one.lock(key) as lock:
            lock.check()
            assert subject.one.try_lock(key) is None
        with pytest.raises(LeaseLost, match="given back"):
            lock.check()
    after = subject.do(subject.two.try_lock(key))
    assert subject.do(after.unlock()) is True


def test_the_holder_is_named_and_listed(subject: LockSubject) -> None:
    key = subject.key()
    assert subject.do(subject.one.inspect(key)) is None
    lock = subject.do(subject.one.try_lock(key))
    info = subject.do(subject.two.inspect(key))
    assert (info.lock_key, info.kind, info.held) == (key, "session", True)
    assert info.fencing_token == lock.fencing_token
    assert subject.do(subject.two.list_locks(prefix=key)) == [info]
    assert subject.do(lock.unlock()) is True
    assert subject.do(subject.two.inspect(key)).held is False


def test_one_of_several_processes_is_granted_a_free_key(form_subject: LockSubject, processes: Pool) -> None:
    subject = form_subject
    workers = processes.take(subject, 3)
    for _ in range(3):
        key = subject.key()
        tokens = race(workers, "try_lock", key=key)
        winners = [number for number, token in enumerate(tokens) if isinstance(token, int)]
        assert len(winners) == 1, tokens
        assert workers[winners[0]].ask("unlock", key=key) is True


def test_processes_never_hold_one_key_at_a_time(form_subject: LockSubject, processes: Pool) -> None:
    subject = form_subject
    workers = processes.take(subject, 3)
    spans = [span for found in race(workers, "compete", key=subject.key(), seconds=0.5) for span in found]
    assert len(spans) > 3
    spans.sort()
    for (_, ended, token), (began, _, next_token) in pairwise(spans):
        assert ended <= began
        assert token < next_token
