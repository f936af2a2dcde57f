"""A worker process: one provider, used by several threads or tasks until the time is over."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import threading
from dataclasses import dataclass
from pathlib import Path

from sqllocks.runtime.blocking import drive
from tests.chaos.forms import Application
from tests.chaos.history import Recorder
from tests.chaos.lane import Lane
from tests.chaos.plan import Plan


@dataclass(frozen=True)
class Post:
    """What one worker process is told."""

    plan: Plan
    worker: str
    address: str
    asyncio_form: bool
    until: float


def main(post: Post) -> None:
    """Work, and leave the history and whatever was printed in the directory of the run."""
    directory: Path = post.plan.directory
    output = os.open(directory / f"{post.worker}.err", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(output, 1)
    os.dup2(output, 2)
    faulthandler.register(signal.SIGUSR1)  # tells where it hangs
    recorder = Recorder(directory / f"{post.worker}.jsonl", post.worker)
    recorder.tell("started", note="asyncio" if post.asyncio_form else "blocking")
    if post.asyncio_form:
        asyncio.run(_on_a_loop(post, recorder))
    else:
        _in_threads(post, recorder)
    recorder.tell("stopped")
    recorder.close()


def _lanes(post: Post, application: Application, recorder: Recorder) -> list[Lane]:
    names = [f"{post.worker}.{number}" for number in range(post.plan.lanes)]
    return [Lane(post.plan, application, recorder, name, post.until) for name in names]


async def _on_a_loop(post: Post, recorder: Recorder) -> None:
    application = Application(post.address, asyncio_form=True, holder=post.worker)
    async with asyncio.TaskGroup() as group:
        for lane in _lanes(post, application, recorder):
            group.create_task(lane.run())
    await application.close()


def _in_threads(post: Post, recorder: Recorder) -> None:
    application = Application(post.address, asyncio_form=False, holder=post.worker)
    threads = [
        threading.Thread(target=lambda lane=lane: drive(lane.run()), name=f"lane-{number}")
        for number, lane in enumerate(_lanes(post, application, recorder))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    drive(application.close())
