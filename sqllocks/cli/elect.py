"""``sqllocks elect``: a command that runs only where this process leads."""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass

import click

from sqllocks.cli import exits, messages
from sqllocks.cli.attending import (
    ABOUT_JOBS,
    TICK,
    Job,
    Outcome,
    attend,
    cannot_start,
    close,
    environment,
    tied,
)
from sqllocks.cli.child import CannotStart, Child
from sqllocks.cli.keeping import telling
from sqllocks.cli.place import Place, place_options
from sqllocks.cli.signals import SIGTSTP, Signals, stop_this_process
from sqllocks.cli.spans import SPAN, SpanRange
from sqllocks.protocols import Elector
from sqllocks.registry import create_elector
from sqllocks.session_lock import Term

__all__ = ["elect_command"]

RESIGNED = 7.0
"""Longest wait for the key to be given up, in seconds; the lease is the last net."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job(Job):
    forever: bool


@click.command("elect", short_help="Run a command while leading.")
@place_options()
@click.argument("key")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--lease",
    type=SPAN,
    metavar="S",
    help="Seconds after which a leader that froze or vanished is followed.  [default: 15]",
)
@click.option(
    "--heartbeat",
    type=SPAN,
    metavar="S",
    help="Seconds between two proofs of leading, at most a third of the lease.  [default: 5, or that third]",
)
@click.option("--retry", type=SPAN, metavar="S", help="Seconds between two tries to lead.  [default: 2]")
@click.option(
    "--strategy",
    type=click.Choice(["auto", "session", "lease"]),
    help="Lead with a session lock, with a lease, or with what the server can do.  [default: auto]",
)
@click.option(
    "--prefix", metavar="TEXT", help="Text before the key, after the namespace.  [default: election:]"
)
@click.option("--forever", is_flag=True, help="Stand again when the command ends, or its leadership.")
@click.option(
    "--grace",
    type=SpanRange(0, 3600),
    default=10.0,
    show_default=True,
    metavar="S",
    help="Seconds from SIGTERM to SIGKILL for a command that has to be stopped.",
)
@click.option("--quiet", "-q", is_flag=True, help="No notes and no warnings on stderr.")
def elect_command(
    place: Place,
    *,
    key: str,
    command: tuple[str, ...],
    lease: float | None,
    heartbeat: float | None,
    retry: float | None,
    strategy: str | None,
    prefix: str | None,
    forever: bool,
    grace: float,
    quiet: bool,
) -> int:
    """Stand for election under KEY, and run COMMAND while leading.

    Of all processes that stand for KEY one leads. It waits for that without limit, also while the database
    is down. When the command ends, leadership is given up; when leadership is lost, the command is
    stopped. The command finds SQLLOCKS_KEY and SQLLOCKS_FENCING_TOKEN in its environment. Times S are
    seconds; 500ms, 30s, 5m and 2h will do, too.

    \b
    Exit codes: the command's own (128+n where signal n ended it, or this process before it led)
      70       leadership was lost: the command was stopped, its children too
      69       the database cannot elect, or has no lock table
      64       bad arguments
      127 126  the command was not found, cannot be started

    With --forever it ends by a signal alone. If sqllocks itself is killed (SIGKILL), another one leads
    within --retry where the server's session locks elect, else within --lease. On Linux the kernel sends
    the command a SIGTERM then, but not the command's children; elsewhere it runs on.
    """
    if not command[0]:
        raise click.UsageError("COMMAND must not be empty")
    if (code := cannot_start(command[0])) is not None:
        messages.say(
            f"cannot start {command[0]!r}: {'not found' if code == exits.NOT_FOUND else 'not allowed'}"
        )
        return code
    job = _Job(key=key, command=command, grace=grace, forever=forever, quiet=quiet)
    if caution := place.caution():
        place.open(tell=False).close()  # makes the user's own file, with its table
        job.note(caution)
    elector = create_elector(
        place.address(),
        lease=lease,
        heartbeat=heartbeat,
        retry=retry,
        strategy=strategy,
        prefix=prefix,
        namespace=place.namespace,
        table=place.table,
        schema=place.schema,
    )
    with telling(job.warn), Signals() as signals:
        signals.collect()
        candidate = _Candidate(elector, key, signals)
        try:
            return _stand(candidate, job, signals)
        finally:
            candidate.leave()
            close(elector.close)


class _Candidate:
    """Stands in a thread of its own: signals, and the command, belong to the main one."""

    def __init__(self, elector: Elector, key: str, signals: Signals) -> None:
        self._elector = elector
        self._key = key
        self._signals = signals
        self._stop = threading.Event()
        self._terms: queue.SimpleQueue[Term] = queue.SimpleQueue()
        self._over = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._main, name="sqllocks-candidate", daemon=True)
        self._thread.start()

    def term(self) -> Term | None:
        """Return a term that has begun; raises what ended the candidacy."""
        if self._error is not None:
            raise self._error
        return None if self._terms.empty() else self._terms.get()

    def resign(self) -> None:
        """Give the term up, and stand again."""
        self._over.set()

    def leave(self) -> None:
        """Give up whatever is led, and stand no more; waits for that, but not for ever."""
        self._stop.set()
        self._over.set()
        self._thread.join(RESIGNED)

    def _main(self) -> None:
        try:
            self._elector.run(self._key, self._lead, stop=self._stop)
        except Exception as error:  # noqa: BLE001 - raised again in the main thread
            self._error = error
        self._signals.wake()

    def _lead(self, term: Term) -> None:
        self._over.clear()
        if self._stop.is_set():  # after the line above, so that it cannot be missed
            return
        self._terms.put(term)
        self._signals.wake()
        self._over.wait()


def _stand(candidate: _Candidate, job: _Job, signals: Signals) -> int:
    job.note(f"standing for {job.key!r}")
    while True:
        term = candidate.term()
        if term is None:
            number = signals.wait(TICK)
            if number == SIGTSTP:
                stop_this_process()
            elif number not in ABOUT_JOBS:
                return exits.of_signal(number)
            continue
        outcome = _lead(term, job, signals)
        if outcome.told or not job.forever:
            return outcome.code
        candidate.resign()


def _lead(term: Term, job: _Job, signals: Signals) -> Outcome:
    token = "" if term.fencing_token is None else f" (token {term.fencing_token})"
    job.note(f"leading {job.key!r}{token}")
    term.on_lost(signals.wake)
    try:
        child = Child(tied(job.command), environment(job.key, term.fencing_token))
    except CannotStart as error:
        messages.say(str(error))
        return Outcome(error.code)
    outcome = attend(child, term, job.key, job.grace, signals)
    if term.lost and not outcome.lost and outcome.code == exits.OK:
        # the last moments of the command were not protected; its own failure would say more
        messages.say(f"the lock {job.key!r} was lost before the command had ended")
        return Outcome(exits.LOST, told=outcome.told, lost=True)
    return outcome
