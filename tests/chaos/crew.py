"""The worker processes of a run, each behind a relay of its own."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack, suppress

from sqlalchemy import URL

from tests.chaos import worker
from tests.chaos.history import Recorder, now
from tests.chaos.plan import Plan
from tests.conformance.kinds import KINDS, Kind
from tests.faults import Relay
from tests.faults.processes import FORKING

END_LIMIT = 30.0
"""Seconds within which a worker must have ended after its time."""
SHOW_LIMIT = 1.0


class Member:
    """A worker's place in the crew; a process that was killed has a successor."""

    def __init__(self, plan: Plan, number: int, kind: Kind, url: URL, until: float, stack: ExitStack) -> None:
        self._plan = plan
        self._number = number
        self._kind = kind
        self._until = until
        self._lives = 0
        self.relay = stack.enter_context(Relay(kind.url(url))) if kind.network else None
        self._address = self.relay.address if self.relay else kind.url(url).render_as_string()
        self.troubled = False
        """Whether a fault of its network or a stop lasts."""
        self.start()

    def start(self) -> None:
        """Start a process."""
        self._lives += 1
        self.name = f"w{self._number}-{self._lives}"
        post = worker.Post(self._plan, self.name, self._address, self._kind.asyncio, self._until)
        self._process = FORKING.Process(target=worker.main, args=(post,), daemon=True)
        self._process.start()

    def signal(self, number: int) -> None:
        """Send a signal to the process."""
        assert self._process.pid is not None
        if self._process.is_alive():
            os.kill(self._process.pid, number)

    def kill(self, recorder: Recorder) -> None:
        """End the process at once, and start another one in its place."""
        self.signal(signal.SIGKILL)
        self._process.join(END_LIMIT)
        # one that had ended before was not killed
        if self._process.exitcode == -signal.SIGKILL:
            recorder.tell("killed", worker=self.name)
        else:
            self._judge(recorder)
        self.start()

    def finish(self, recorder: Recorder) -> None:
        """Wait for the end of the process; one that does not come to it shows where it hangs."""
        self._process.join(max(self._until + END_LIMIT - now(), SHOW_LIMIT))
        if self._process.is_alive():
            recorder.tell("died", worker=self.name, note=f"did not end; see {self.name}.err")
            with suppress(ProcessLookupError):
                self.signal(signal.SIGUSR1)
            self._process.join(SHOW_LIMIT)
            self.signal(signal.SIGKILL)
            self._process.join(END_LIMIT)
        else:
            self._judge(recorder)

    def abandon(self) -> None:
        """End the process, whatever it does."""
        self.signal(signal.SIGKILL)
        self._process.join(END_LIMIT)

    def _judge(self, recorder: Recorder) -> None:
        if self._process.exitcode != 0:
            note = f"exit code {self._process.exitcode}; see {self.name}.err"
            recorder.tell("died", worker=self.name, note=note)


def assemble(plan: Plan, url: URL, until: float, stack: ExitStack) -> list[Member]:
    """Start the workers, spread over all drivers and forms of the server."""
    kinds = [kind for kind in KINDS if kind.server == plan.server]
    return [
        Member(plan, number, kinds[number % len(kinds)], url, until, stack) for number in range(plan.workers)
    ]
