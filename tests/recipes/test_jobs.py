"""Jobs on the leader alone: when they start, what they see, and what they are awaited for (143 to 147)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from functools import partial
from itertools import pairwise

import pytest

from sqllocks import AsyncMemoryElector, LockValidationError, MemoryElector, Term
from sqllocks.recipes.schedule import AsyncJobRunner, JobRunner, async_every, every
from tests.conformance.polling import until
from tests.recipes.leading import Candidates, Log
from tests.scenarios import jobs
from tests.scenarios.arena import Arena
from tests.servers import require_server

PLACES = ("memory-blocking", "memory-asyncio", "sqlite-blocking", "postgresql-asyncio")
KEY = "jobs"


@pytest.fixture(params=PLACES)
def candidates(request: pytest.FixtureRequest, arenas: dict[str, Arena]) -> Iterator[Candidates]:
    server, form = request.param.split("-")
    where = None
    if server != "memory":
        require_server(server)
        arena = arenas[server]
        kind = next(kind for kind in arena.kinds if kind.asyncio == (form == "asyncio"))
        where = arena.target(kind).address
        arena.observer.rows("DELETE FROM core_locks")
    found = Candidates(where, asyncio=form == "asyncio", loop=jobs.clients.loop)
    yield found
    found.close()


def test_c143_two_instances_run_a_job_as_often_as_one(candidates: Candidates) -> None:
    log = Log()
    for _ in range(2):
        runner = candidates.runner(candidates.elector(), KEY)
        candidates.start(runner.every(0.3, candidates.noting(log)))
    until(lambda: len(log.runs) >= 4, within=10)
    assert len(log.tokens()) == 1
    moments = [run.moment for run in log.runs]
    assert all(later - earlier > 0.1 for earlier, later in pairwise(moments)), moments
    assert moments[-1] - moments[0] > 0.3 * (len(moments) - 1) - 0.2


def test_c144_c145_after_a_loss_nothing_starts_and_the_running_job_is_awaited(candidates: Candidates) -> None:
    log = Log()
    runner = candidates.runner(candidates.elector(), KEY)
    runner.add(candidates.lasting(log)).every(0.02, candidates.noting(log))
    candidates.start(runner)
    until(lambda: log.began.is_set() and log.runs, within=10)
    candidates.break_term(KEY)
    assert log.saw_loss.wait(10)
    begun = len(log.runs)
    # twenty intervals in which nothing may start, and no other term begins
    assert not log.finish.wait(0.4)
    assert len(log.runs) - begun <= 1
    assert len(log.tokens()) == 1
    log.finish.set()
    until(lambda: len(log.tokens()) == 2, within=15)
    assert log.ended is not None
    assert all(run.moment > log.ended for run in log.runs if run.token != log.tokens()[0])


def test_c144_by_choice_the_key_is_handed_on_when_running_jobs_have_ended(candidates: Candidates) -> None:
    log = Log()
    runner = candidates.runner(candidates.elector(), KEY)
    running = candidates.start(runner.add(candidates.lasting(log)))
    assert log.began.wait(10)
    candidates.stop()
    assert not log.finish.wait(0.3)
    assert candidates.leads(KEY)
    assert not running.done()
    log.finish.set()
    running.result(10)
    assert not candidates.leads(KEY)


def test_c146_without_an_elector_jobs_start_at_once_and_stop_ends_them(candidates: Candidates) -> None:
    log = Log()
    runner = candidates.runner(None, KEY).every(30, candidates.noting(log), immediate=True)
    running = candidates.start(runner)
    until(lambda: log.runs, within=2)
    candidates.stop()
    running.result(5)
    assert len(log.runs) == 1


def test_c146_with_an_elector_none_runs_before_the_election(candidates: Candidates) -> None:
    first, second = Log(), Log()
    leading = candidates.runner(candidates.elector(), KEY).add(candidates.lasting(first))
    running = candidates.start(leading)
    assert first.began.wait(10)
    waiting = candidates.runner(candidates.elector(), KEY)
    candidates.start(waiting.every(30, candidates.noting(second), immediate=True))
    assert not first.finish.wait(0.5)
    assert second.runs == []
    first.finish.set()
    candidates.break_term(KEY)
    until(lambda: second.runs or not running.running(), within=10)


def test_c147_immediate_runs_once_with_each_election_and_then_at_intervals(candidates: Candidates) -> None:
    rare, often = Log(), Log()
    runner = candidates.runner(candidates.elector(), KEY)
    runner.every(30, candidates.noting(rare), immediate=True)
    runner.every(0.3, candidates.noting(often), immediate=True)
    candidates.start(runner)
    until(lambda: len(often.runs) >= 2, within=10)
    assert 0.1 < often.runs[1].moment - often.runs[0].moment < 1.5
    candidates.break_term(KEY)
    until(lambda: len(rare.runs) == 2, within=10)
    assert len({run.token for run in rare.runs}) == 2


def test_what_a_job_raises_does_not_end_the_others() -> None:
    stop, seen, ran = threading.Event(), list[Exception](), list[float]()

    def failing() -> None:
        raise ZeroDivisionError

    def working() -> None:
        ran.append(time.monotonic())
        if len(ran) == 3:
            stop.set()

    runner = JobRunner(MemoryElector(), KEY, on_error=seen.append)
    runner.every(0.01, failing).every(0.02, working).run(stop=stop)
    assert len(ran) == 3
    assert seen
    assert isinstance(seen[0], ZeroDivisionError)


def test_every_blocks_until_stopped() -> None:
    stop, ran = threading.Event(), list[int | None]()

    def work(term: Term) -> None:
        ran.append(term.fencing_token)
        stop.set()

    with MemoryElector() as elector:
        every(elector, KEY, 30, work, immediate=True, stop=stop)
        assert elector.leader(KEY) is None
    assert len(ran) == 1


@pytest.mark.anyio
async def test_async_every_is_ended_by_a_cancel_which_goes_on() -> None:
    began, ended = asyncio.Event(), list[bool]()

    async def work() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            ended.append(True)

    async with AsyncMemoryElector() as elector:
        task = asyncio.ensure_future(async_every(elector, KEY, 30, work, immediate=True))
        await asyncio.wait_for(began.wait(), 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == [True]
        assert await elector.leader(KEY) is None


@pytest.mark.parametrize("interval", [0, -1, float("inf"), float("nan")])
def test_an_interval_is_above_zero(interval: float) -> None:
    async def nothing() -> None:
        pass

    with pytest.raises(LockValidationError):
        JobRunner(None, KEY).every(interval, print)
    with pytest.raises(LockValidationError):
        AsyncJobRunner(None, KEY).every(interval, nothing)


def test_a_blocking_runner_refuses_a_coroutine_function() -> None:
    async def work() -> None:
        """Would never be awaited."""

    class Callable:
        async def __call__(self, term: Term) -> None:
            """Would never be awaited either."""

    runner = JobRunner(None, KEY)
    for job in (work, partial(work), Callable()):
        for add in (runner.add, partial(runner.every, 1)):
            with pytest.raises(TypeError, match="is a coroutine function: use AsyncJobRunner"):
                add(job)
    runner.add(lambda: None).every(1, print)
