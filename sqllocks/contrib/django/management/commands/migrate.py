"""Django's `migrate`, one at a time for each database."""

# pyright: basic
# Django has no types

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError
from django.core.management.commands.migrate import Command as DjangoCommand

from sqllocks.contrib.django import lock_provider
from sqllocks.errors import LockTimeout
from sqllocks.lease import Lease

__all__ = ["Command"]

KEY = "migrations:apply"
TTL = 30
READING = ("plan", "check_unapplied", "prune")


class Command(DjangoCommand):
    """Waits for another `migrate` of the same database, and reads the state anew when it is its turn."""

    _lease: Lease | None = None

    def add_arguments(self, parser: Any) -> None:
        """Add ``--lock-wait``."""
        super().add_arguments(parser)
        parser.add_argument(
            "--lock-wait",
            type=float,
            default=300,
            metavar="SECONDS",
            help="how long to wait for another migrate of this database (300)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Migrate under the lock ``migrations:apply``; reading variants take none."""
        wait = options.pop("lock_wait", 300)
        if any(options.get(name) for name in READING):
            super().handle(*args, **options)
            return
        locks = lock_provider(options["database"])
        locks.create_table()
        try:
            block = locks.hold(KEY, ttl=TTL, wait=wait)
            with block as self._lease:
                super().handle(*args, **options)
        except LockTimeout as busy:
            raise CommandError(f"{busy}") from busy

    def migration_progress_callback(self, action: str, migration: Any = None, fake: bool = False) -> None:
        """Start no further migration after the lock was lost."""
        if self._lease is not None and action.endswith("_start"):
            self._lease.check()
        super().migration_progress_callback(action, migration, fake)
