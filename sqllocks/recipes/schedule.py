"""Schedules across instances: one planned slot once (``run_slot``), and jobs on the leader alone (``every``).

Where the moments are planned (cron), use ``run_slot``: its identity is the planned moment, so that all
instances may trigger and one runs. Where only the pace matters, use ``every``: around a change of leaders two
runs may be closer together, or further apart, than the interval.
"""

from __future__ import annotations

from sqllocks.recipes.jobs import AsyncJobRunner, JobRunner, async_every, every
from sqllocks.recipes.slots import (
    AsyncSlots,
    SlotDone,
    SlotRun,
    Slots,
    async_run_slot,
    run_slot,
    schedule_slots,
)

__all__ = [
    "AsyncJobRunner",
    "AsyncSlots",
    "JobRunner",
    "SlotDone",
    "SlotRun",
    "Slots",
    "async_every",
    "async_run_slot",
    "every",
    "run_slot",
    "schedule_slots",
]
