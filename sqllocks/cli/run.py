"""``sqllocks run``: a command that runs only while its lock is held."""

from __future__ import annotations

from dataclasses import dataclass

import click

from sqllocks.cli import exits, messages
from sqllocks.cli.attending import Job, attend, close, environment
from sqllocks.cli.child import CannotStart, Child
from sqllocks.cli.keeping import Ending, KeepingProvider, give_back, telling
from sqllocks.cli.place import Place, place_options
from sqllocks.cli.signals import Interrupted, Signals
from sqllocks.cli.spans import SPAN, SpanRange
from sqllocks.core.claiming import Grant
from sqllocks.errors import LockError, LockNotAcquired, LockTimeout
from sqllocks.policy import checked_at_least, checked_ttl, fresh_token
from sqllocks.protocols import LockProvider

__all__ = ["run_command"]

GIVE_BACK = 6.0
"""Longest wait for the answer to the release, in seconds; the ttl is the last net."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job(Job):
    ttl: float
    wait: float
    at_least: int
    """Microseconds."""
    busy_exit: int


@click.command("run", short_help="Run a command while holding a lock.")
@place_options()
@click.argument("key")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--ttl",
    type=SPAN,
    required=True,
    metavar="S",
    help="Seconds the lock lasts without renewal, 0.1 to 2592000; it is renewed at a third of that.",
)
@click.option(
    "--wait", type=SPAN, default=0.0, metavar="S", help="Seconds to wait for a busy lock.  [default: 0]"
)
@click.option(
    "--at-least",
    type=SPAN,
    default=0.0,
    metavar="S",
    help="Seconds for which the key stays taken after the grant, at most the ttl, although the command has "
    "ended: so a quick job of several machines runs once.  [default: 0]",
)
@click.option("--skip", is_flag=True, help="Exit 0 where the lock is busy.")
@click.option("--busy-exit", type=click.IntRange(0, 255), metavar="N", help="Exit N where the lock is busy.")
@click.option(
    "--grace",
    type=SpanRange(0, 3600),
    default=10.0,
    show_default=True,
    metavar="S",
    help="Seconds from SIGTERM to SIGKILL for a command that has to be stopped.",
)
@click.option("--quiet", "-q", is_flag=True, help="No notes and no warnings on stderr.")
def run_command(
    place: Place,
    *,
    key: str,
    command: tuple[str, ...],
    ttl: float,
    wait: float,
    at_least: float,
    skip: bool,
    busy_exit: int | None,
    grace: float,
    quiet: bool,
) -> int:
    """Run COMMAND while holding the lock KEY.

    The lock is renewed while the command runs and given back when it ends. Input, output and signals
    are the command's; it finds SQLLOCKS_KEY and SQLLOCKS_FENCING_TOKEN in its environment. What it
    leaves running when it ends is not waited for. Times S are seconds; 500ms, 30s, 5m and 2h will do, too.

    \b
    Exit codes: the command's own (128+n where signal n ended it)
      75       the lock is busy: nothing was started
      70       the lock was lost: the command was stopped, its children too
      69       the database cannot be reached, or has no lock table
      64       bad arguments
      127 126  the command was not found, cannot be started

    If sqllocks itself is killed (SIGKILL), the ttl ends the lock. On Linux the kernel sends the command a
    SIGTERM then, but not the command's children; elsewhere it runs on. What runs on has to have its writes
    checked by the fencing token. The same is true of a command whose sqllocks was stopped (SIGSTOP) for
    longer than the ttl, until it continues.
    """
    if skip and busy_exit is not None:
        raise click.UsageError("--skip is --busy-exit 0: use one of them")
    if not command[0]:
        raise click.UsageError("COMMAND must not be empty")
    job = _Job(
        key=key,
        command=command,
        ttl=ttl,
        wait=wait,
        at_least=checked_at_least(at_least, checked_ttl(ttl)),
        busy_exit=_busy_exit(skip, busy_exit),
        grace=grace,
        quiet=quiet,
    )
    with telling(job.warn), Signals() as signals:
        try:
            return _under_lock(place, job, signals)
        except Interrupted as interrupted:
            return exits.of_signal(interrupted.number)


def _busy_exit(skip: bool, busy_exit: int | None) -> int:
    if busy_exit is not None:
        return busy_exit
    return exits.OK if skip else exits.BUSY


def _under_lock(place: Place, job: _Job, signals: Signals) -> int:
    owner = fresh_token()
    provider = place.open(tell=False)
    if caution := place.caution():
        job.note(caution)
    # a wait may leave a thread that listens, and the command is to be started beside none
    asking = place.open(tell=False) if job.wait else provider
    try:
        grant = asking.take(job.key, ttl=job.ttl, owner_token=owner, wait=job.wait)
        signals.collect()
        if asking is not provider:
            close(asking.close)
        return _run(provider, grant, job, signals)
    except LockNotAcquired as busy:
        job.note(_busy(provider, job, busy))
        return job.busy_exit
    except Interrupted:
        # it may have come between the grant and the next line
        _give_back(provider, job, owner)
        raise
    finally:
        close(asking.close)
        close(provider.close)


def _run(provider: KeepingProvider, grant: Grant, job: _Job, signals: Signals) -> int:
    try:
        child = Child(job.command, environment(grant.handle.lock_key, grant.handle.fencing_token))
    except CannotStart as error:
        _give_back(provider, job, grant.want.owner)
        messages.say(str(error))
        return error.code
    lease = provider.keep(grant, at_least=job.at_least)
    lease.on_lost(signals.wake)
    code = attend(child, lease, job.key, job.grace, signals).code
    ending = give_back(lease, GIVE_BACK, job.warn)
    if ending is Ending.LOST and code == exits.OK:
        # the last moments of the command were not protected; its own failure would say more
        messages.say(f"the lock {job.key!r} was lost before the command had ended")
        return exits.LOST
    return code


def _busy(provider: LockProvider, job: _Job, busy: LockNotAcquired) -> str:
    """Return the message of a busy lock, with its holder where one more question tells it."""
    if isinstance(busy, LockTimeout):
        return busy.message
    try:
        info = provider.inspect(job.key)
    except LockError:
        info = None
    if info is None or not info.held or info.acquired_at is None:
        return busy.message
    return f"{job.key!r} is busy: held by {info.holder} since {info.acquired_at:%Y-%m-%d %H:%M:%S} UTC"


def _give_back(provider: LockProvider, job: _Job, owner: str) -> None:
    try:
        provider.release(job.key, owner_token=owner)
    except (LockError, Interrupted) as error:
        job.warn(f"{job.key!r} may stay locked until its ttl is over: {error}")
