"""The queue of the blocking form, before a place that can be held back."""

from __future__ import annotations

import linecache
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import FrameType
from typing import Any
from unittest import mock

import pytest

from sqllocks.core import combining
from sqllocks.core.leases import Leases
from sqllocks.dialects.base import FaultKind, Verdict
from sqllocks.runtime import combining_blocking
from sqllocks.runtime.blocking import BlockingClock, drive
from sqllocks.runtime.combining_blocking import BlockingCombiner
from tests.combining.backends import CALLER, PATIENCE, BlockingStatements, claim_of, fault, release_of
from tests.conformance.polling import until

MANY = 64
TTL = 60.0
SOON = 0.05


class Stand:
    """A combiner, what is behind it, and a core in front."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self.backend = BlockingStatements()
        self.combiner = BlockingCombiner(self.backend, limit=1)
        self.leases = Leases(BlockingClock(), self.combiner)
        self._threads = threads

    def acquire(self, key: str) -> Any:
        return drive(self.leases.acquire(key, ttl=TTL))

    def acquiring(self, *keys: str) -> list[Future[Any]]:
        return [self._threads.submit(self.acquire, key) for key in keys]

    def start(self, work: Callable[[], Any]) -> Future[Any]:
        return self._threads.submit(work)

    def flying(self, key: str = "first") -> Future[Any]:
        """Begin a claim that stays in flight until the gate is opened."""
        self.backend.gate.clear()
        [begun] = self.acquiring(key)
        assert self.backend.arrived.acquire(timeout=PATIENCE)
        return begun

    def queued(self, number: int) -> None:
        """Return once so many calls wait."""
        until(lambda: len(self.combiner._queue._waiting) == number, what=f"{number} calls in the queue")


@pytest.fixture
def stand() -> Iterator[Stand]:
    with ThreadPoolExecutor(MANY + 2, "caller") as threads:
        stand = Stand(threads)
        yield stand
        stand.backend.gate.set()


@pytest.fixture
def hurried() -> Iterator[None]:
    """Let what is overdue, or idle, be so soon."""
    with (
        mock.patch.object(combining_blocking, "OVERDUE", SOON),
        mock.patch.object(BlockingCombiner, "LINGER", SOON),
    ):
        yield


@pytest.fixture
def patient() -> Iterator[None]:
    """Let everybody have a turn, however slow the machine is."""
    with mock.patch.object(combining_blocking, "TURNS", PATIENCE):
        yield


def results(futures: Sequence[Future[Any]]) -> list[Any]:
    return [future.exception(PATIENCE) or future.result() for future in futures]


def test_a_lone_caller_sends_in_its_own_thread(stand: Stand) -> None:
    with mock.patch.object(threading.Thread, "start", side_effect=AssertionError):
        for _ in range(3):
            drive(stand.combiner.claim(claim_of("k")))
            drive(stand.combiner.release(release_of("k")))
    assert stand.backend.names() == ["claim", "release"] * 3


def test_callers_that_arrive_during_a_statement_share_the_next_one(stand: Stand) -> None:
    first = stand.flying()
    keys = [f"key {number}" for number in range(MANY)]
    others = stand.acquiring(*keys)
    stand.queued(MANY)
    stand.backend.gate.set()
    assert [handle.lock_key for handle in results(others)] == keys
    assert all(handle.acquired for handle in results([first, *others]))
    assert len(stand.backend.sent) == 2


def test_callers_who_were_answered_together_go_together_again(stand: Stand, patient: None) -> None:
    cycles = 10

    def cycle(key: str) -> None:
        for _ in range(cycles):
            handle = stand.acquire(key)
            assert handle.acquired
            assert drive(stand.leases.release(key, owner_token=handle.owner_token))

    first = stand.flying()
    callers = [stand.start(lambda key=f"key {number}": cycle(key)) for number in range(MANY)]  # type: ignore[misc]
    stand.queued(MANY)
    stand.backend.gate.set()
    assert results(callers) == [None] * MANY
    assert first.result(PATIENCE).acquired
    # now and then somebody comes a little late
    assert len(stand.backend.sent) < 3 * 2 * cycles


def test_a_caller_who_is_alone_again_sends_by_itself_at_once(stand: Stand, patient: None) -> None:
    first = stand.flying()
    both = stand.acquiring("a", "b")
    stand.queued(2)
    stand.backend.gate.set()
    assert all(handle.acquired for handle in results([first, *both]))
    until(lambda: not stand.combiner._gathering, what="the sender waits for nobody")

    def twice() -> list[Any]:
        CALLER.set("itself")
        return [stand.acquire("c"), stand.acquire("d")]

    first = stand.flying("another")
    alone = stand.start(twice)
    stand.queued(1)
    stand.backend.gate.set()
    assert all(handle.acquired for handle in [*results([first, alone])[1], first.result()])
    *_, shared, own = stand.backend.sent
    assert (shared.keys, shared.caller) == (("c",), "nobody")
    assert (own.keys, own.caller) == (("d",), "itself")


def test_callers_who_do_not_come_back_keep_nobody_waiting(stand: Stand) -> None:
    ended = threading.Event()

    def once_and_busy(key: str) -> Any:
        handle = stand.acquire(key)
        assert ended.wait(PATIENCE)
        return handle

    first = stand.flying()
    busy = [stand.start(lambda key=f"busy {number}": once_and_busy(key)) for number in range(8)]  # type: ignore[misc]
    stand.queued(8)
    stand.backend.gate.set()
    assert all(handle.acquired for handle in results(stand.acquiring("a", "b")))
    ended.set()
    assert all(handle.acquired for handle in results([first, *busy]))


def test_a_caller_who_has_gone_and_wakes_nobody_is_made_up_for(stand: Stand) -> None:
    gone = combining.Call(combining.Kind.CLAIM, claim_of("gone"), True, threading.Lock())
    gone.caller.acquire()
    with mock.patch.object(combining_blocking, "OVERDUE", 10 * PATIENCE):
        first = stand.flying()
        with stand.combiner._mutex:
            stand.combiner._queue.add(gone)
        calls = stand.acquiring("a", "b")
        stand.queued(3)
        stand.backend.gate.set()
        assert all(handle.acquired for handle in results([first, *calls]))


def test_callers_for_one_key_are_asked_one_after_the_other_and_one_wins(stand: Stand) -> None:
    handles = results(stand.acquiring(*["k"] * MANY))
    assert sum(handle.acquired for handle in handles) == 1
    assert all(statement.keys == ("k",) for statement in stand.backend.sent)


def test_a_statement_that_fails_as_a_whole_is_sent_again_call_by_call(stand: Stand) -> None:
    stand.backend.fails = lambda _, keys: fault(FaultKind.OTHER) if "poison" in keys else None
    first = stand.flying()
    calls = [
        stand.start(lambda key=key: drive(stand.combiner.claim(claim_of(key))))  # type: ignore[misc]
        for key in ("a", "poison", "z")
    ]
    stand.queued(3)
    stand.backend.gate.set()
    good, bad, also_good = results(calls)
    assert first.result(PATIENCE).acquired
    assert good["a"].verdict is also_good["z"].verdict is Verdict.DONE
    assert bad.kind is FaultKind.OTHER
    assert sorted(len(statement.keys) for statement in stand.backend.sent) == [1, 1, 1, 1, 3]


def test_a_shared_statement_that_is_stopped_by_whatever_leaves_no_caller_waiting(
    stand: Stand, caplog: pytest.LogCaptureFixture
) -> None:
    stand.backend.fails = lambda _, keys: SystemExit() if len(keys) > 1 else None
    first = stand.flying()
    calls = stand.acquiring("a", "b")
    stand.queued(2)
    stand.backend.fails = once(stand.backend.fails)
    stand.backend.gate.set()
    assert all(handle.acquired for handle in results([first, *calls]))
    assert "a shared statement was stopped" in caplog.messages


def once(fails: Callable[..., Any]) -> Callable[..., Any]:
    left = [True]

    def failing(name: str, keys: Sequence[str]) -> Any:
        failure = fails(name, keys) if left else None
        if failure is not None:
            left.clear()
        return failure

    return failing


def test_each_caller_gets_an_exception_of_its_own(stand: Stand) -> None:
    stand.backend.fails = lambda _, keys: fault(FaultKind.NO_TABLE) if len(keys) > 1 else None
    stand.flying()
    calls = stand.acquiring("a", "b", "c")
    stand.queued(3)
    stand.backend.gate.set()
    errors = results(calls)
    assert len({id(error) for error in errors}) == 3
    assert [error.details["lock_key"] for error in errors] == ["a", "b", "c"]
    assert all(isinstance(error.__cause__, ValueError) for error in errors)


def test_a_shared_statement_is_sent_in_no_callers_context(stand: Stand) -> None:
    def claim(name: str) -> str:
        CALLER.set(name)
        drive(stand.combiner.claim(claim_of(name)))
        return CALLER.get()

    first = stand.flying()
    calls = [stand.start(lambda name=name: claim(name)) for name in "ab"]  # type: ignore[misc]
    stand.queued(2)
    stand.backend.gate.set()
    assert results(calls) == ["a", "b"]
    first.result(PATIENCE)
    assert [statement.caller for statement in stand.backend.sent[1:]] == ["nobody"]


def test_where_no_thread_can_be_started_each_caller_sends_by_itself(stand: Stand) -> None:
    first = stand.flying()
    start = threading.Thread.start

    def fails(thread: threading.Thread) -> None:
        if thread.name == "sqllocks-sender":
            raise RuntimeError("can't start new thread")
        start(thread)

    with mock.patch.object(threading.Thread, "start", fails):
        calls = stand.acquiring("a", "b")
        for _ in calls:
            assert stand.backend.arrived.acquire(timeout=PATIENCE)
        stand.backend.gate.set()
        assert all(handle.acquired for handle in results([first, *calls]))
    assert stand.combiner._queue.idle


@pytest.mark.usefixtures("hurried")
def test_a_sender_that_has_been_idle_ends_and_another_one_follows(stand: Stand) -> None:
    for round_ in range(2):
        first = stand.flying(f"first {round_}")
        calls = stand.acquiring(f"a {round_}", f"b {round_}")
        stand.queued(2)
        stand.backend.gate.set()
        assert all(handle.acquired for handle in results([first, *calls]))
        until(lambda: stand.combiner._thread is None, what="the sender does not end")


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("alone", [True, False], ids=["of a lone caller", "of several callers"])
def test_a_statement_without_an_answer_does_not_hold_up_the_callers_of_other_keys(
    stand: Stand, alone: bool
) -> None:
    stuck = threading.Event()
    take_time = stand.backend._take_time

    async def sometimes(name: str, keys: Sequence[str]) -> None:
        if "hung" in keys:
            assert stuck.wait(PATIENCE)
        await take_time(name, keys)

    with mock.patch.object(stand.backend, "_take_time", sometimes):
        before = [] if alone else [stand.flying()]
        hanging = stand.acquiring("hung")
        if alone:
            until(lambda: stand.backend.sent, what="a statement")
        else:
            stand.queued(1)
            stand.backend.gate.set()
            until(lambda: len(stand.backend.sent) == 2, what="the second statement")
        others = stand.acquiring("a", "b", "hung")
        assert all(handle.acquired for handle in results([*before, *others[:2]]))
        assert not hanging[0].done()
        assert not others[2].done(), "two statements for one key"
        stuck.set()
        assert results(hanging)[0].acquired
        assert not results(others)[2].acquired
    later = stand.acquiring("c", "d")
    assert all(handle.acquired for handle in results(later))


# -- interrupts, which only the main thread gets

main_thread_only = pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals come to the main thread"
)


@contextmanager
def handling(number: int, handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def interrupt(number: int = signal.SIGINT) -> None:
    ident = threading.main_thread().ident
    assert ident is not None
    signal.pthread_kill(ident, number)


@main_thread_only
def test_a_key_from_the_keyboard_in_the_queue_leaves_the_others_served(stand: Stand) -> None:
    first = stand.flying()

    def strike() -> list[Any]:
        others = stand.acquiring("a", "main")
        stand.queued(3)
        interrupt()
        # the one who was interrupted gives back what it may have got, behind the others
        stand.queued(3)
        stand.backend.gate.set()
        return results(others)

    striking = stand.start(strike)
    with handling(signal.SIGINT, signal.default_int_handler), pytest.raises(KeyboardInterrupt):
        stand.acquire("main")
    assert all(handle.acquired for handle in striking.result(PATIENCE)[:1])
    assert first.result(PATIENCE).acquired
    assert stand.combiner._queue.idle


@main_thread_only
def test_a_signal_handler_may_give_back_a_lock_in_the_middle_of_a_call(stand: Stand) -> None:
    drive(stand.combiner.claim(claim_of("held")))
    released: list[Verdict] = []
    take_time = stand.backend._take_time

    async def for_claims(name: str, keys: Sequence[str]) -> None:
        if name == "claim":
            await take_time(name, keys)

    def handler(*_: object) -> None:
        if not released:
            released.append(drive(stand.combiner.release(release_of("held")))["held"].verdict)

    def strike() -> None:
        assert stand.backend.arrived.acquire(timeout=PATIENCE)

        # one that comes just before the thread begins to wait is noticed at its next signal only
        def handled() -> bool:
            interrupt(signal.SIGUSR1)
            return bool(released)

        until(handled, what="the handler waits for the call that it interrupted")
        stand.backend.gate.set()

    assert stand.backend.arrived.acquire(timeout=PATIENCE)
    stand.backend.gate.clear()
    striking = stand.start(strike)
    with mock.patch.object(stand.backend, "_take_time", for_claims), handling(signal.SIGUSR1, handler):
        assert stand.acquire("other").acquired
    striking.result(PATIENCE)
    assert released == [Verdict.DONE]


class Strike:
    """Raises ``KeyboardInterrupt`` at one line of the queue's code in this thread, wherever that is."""

    def __init__(self, number: int) -> None:
        self.left = number
        self.struck = ""

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in (combining_blocking.__file__, combining.__file__):
            return None
        return self._line

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        # no signal is handled between a `with` and its lock, nor at the step that is a bare `try`
        if event == "line" and not _text(frame).startswith(("with ", "try:")):
            self.left -= 1
            if self.left == 0:
                self.struck = f"{frame.f_code.co_name}: {_text(frame)}"
                raise KeyboardInterrupt
        return self._line


def _text(frame: FrameType) -> str:
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()


def _interrupted(stand: Stand, number: int, key: str) -> str:
    """Let the call be interrupted at its line of that number; return where, or nothing where it ended."""
    strike = Strike(number)
    before = sys.gettrace()
    sys.settrace(strike)
    try:
        stand.acquire(key)
    except KeyboardInterrupt:
        assert strike.struck
    finally:
        sys.settrace(before)
    return strike.struck


@main_thread_only
@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("alone", [True, False], ids=["by itself", "in the queue"])
def test_an_interrupt_at_any_line_leaves_everybody_served_and_nothing_held(stand: Stand, alone: bool) -> None:
    places = []
    for number in range(1, 500):
        stand.backend.gate.set()
        before = [] if alone else [stand.flying(f"first {number}")]
        opening = stand.start(lambda n=number: _open(stand, alone, n))  # type: ignore[misc]
        struck = _interrupted(stand, number, f"main {number}")
        stand.backend.gate.set()
        # an uninterrupted call has its key
        freed = [f"main {number}"] if struck else []
        others = stand.acquiring(f"a {number}", f"b {number}", *freed)
        handles = [*results([*before, *others]), *opening.result(PATIENCE)]
        assert all(handle.acquired for handle in handles), struck
        if not struck:
            break
        places.append(struck)
    assert len(places) > (15 if alone else 20), places


def _open(stand: Stand, alone: bool, number: int) -> list[Any]:
    if alone:
        return []
    [other] = stand.acquiring(f"other {number}")
    until(lambda: len(stand.combiner._queue._waiting) >= 1, what="a call in the queue")
    stand.backend.gate.set()
    return results([other])


# -- forks


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_with_a_statement_in_flight_leaves_the_child_its_own_queue(stand: Stand) -> None:
    first = stand.flying()
    waiting = stand.acquiring("a", "b")
    stand.queued(2)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            stand.backend.gate = threading.Event()
            stand.backend.gate.set()
            stand.backend.arrived = threading.Semaphore(0)
            code = 0 if stand.acquire("child").acquired and stand.combiner._queue.idle else 2
        finally:
            os._exit(code)
    ended = until(lambda: os.waitpid(child, os.WNOHANG)[0] and True, within=PATIENCE, what="the child")
    assert ended
    stand.backend.gate.set()
    assert all(handle.acquired for handle in results([first, *waiting]))
