"""Celery beat on several instances: each trigger of an entry is sent by one of them.

    app.conf.sqllocks = "postgresql://…"              # a URL, or a SqlLockProvider
    $ celery --app tasks beat --scheduler sqllocks.contrib.celery:LockedScheduler

Every instance runs beat with the same schedule, and a schedule file of its own. A trigger of a crontab or
solar schedule is known by the moment for which it was planned. An interval has no such moment: of each
interval, counted from 1970, one trigger is sent; so when one instance stops, the others go on, and there is
no leader.
"""

# pyright: basic
# Celery has no types

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

from celery.beat import PersistentScheduler

from sqllocks.errors import LockError, LockNotAcquired
from sqllocks.protocols import LockProvider
from sqllocks.providers import SqlLockProvider
from sqllocks.recipes.schedule import run_slot

__all__ = ["LockedScheduler", "planned_moment"]

logger = logging.getLogger("sqllocks")

LATE = timedelta(hours=1)
"""An instance that is late by less does not send a trigger again that another has sent."""
LONGEST = timedelta(days=30)


class LockedScheduler(PersistentScheduler):
    """Beat's own scheduler, which sends a trigger only where no other instance has sent it.

    A database that does not answer means that this instance sends nothing: unknown is not the same as free.
    """

    def setup_schedule(self) -> None:
        """Open the provider that ``app.conf.sqllocks`` names, then do as beat does."""
        given = self.app.conf.get("sqllocks")
        if given is None:
            raise LookupError("set app.conf.sqllocks to a database URL or to a lock provider")
        self._locks: LockProvider = SqlLockProvider(given) if isinstance(given, str) else given
        super().setup_schedule()

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """Send a due task unless another instance has sent it."""
        moment, keep = planned_moment(entry, datetime.now(UTC))

        def send() -> None:
            super(LockedScheduler, self).apply_entry(entry, producer=producer)

        try:
            run_slot(self._locks, f"celery:{entry.name}", moment, send, ttl=keep, at_least=keep)
        except LockNotAcquired as busy:
            logger.debug("%s", busy)
        except LockError as error:
            logger.error("beat did not send %s: %s", entry.name, error)  # noqa: TRY400 - the cause is told

    def close(self) -> None:
        """Close the schedule and the provider."""
        super().close()
        self._locks.close()


def planned_moment(entry: Any, now: datetime) -> tuple[datetime, timedelta]:
    """Return what all instances call this trigger, and for how long its lock is kept."""
    every: timedelta | None = getattr(entry.schedule, "run_every", None)
    if isinstance(every, timedelta) and every > timedelta():
        epoch = datetime(1970, 1, 1, tzinfo=UTC)
        return epoch + (now - epoch) // every * every, min(every + timedelta(minutes=1), LONGEST)
    planned = now + entry.schedule.remaining_estimate(entry.last_run_at)
    # to the minute, which is what a crontab knows: the estimate is taken a moment after `now`
    minute = (planned + timedelta(seconds=30)).replace(second=0, microsecond=0)
    return minute, LATE
