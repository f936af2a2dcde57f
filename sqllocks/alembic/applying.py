"""``apply_migrations``: an upgrade by one process at a time, which others that start meanwhile wait for."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.runtime.migration import MigrationContext, MigrationStep, RevisionStep
from alembic.script import ScriptDirectory
from alembic.script.revision import RevisionError
from alembic.util import CommandError
from sqlalchemy import Engine

from sqllocks.alembic.guarding import (
    DEFAULT_KEY,
    DEFAULT_TTL,
    DEFAULT_WAIT,
    MigrationGuard,
    entered,
    wish,
)
from sqllocks.alembic.holding import Wish, migration_lock
from sqllocks.alembic.progress import MigrationResult, Progress, Revisions
from sqllocks.errors import LeaseLost, LockTimeout
from sqllocks.model import Seconds
from sqllocks.runtime.binding import engine_for

__all__ = ["BIND", "apply_migrations"]

BIND = "sqllocks.bind"
"""The entry of ``config.attributes`` that says where the lock is kept."""
_SHORT = 1.0
"""Seconds that one who does not wait gives other threads to look at their version."""

# one environment at a time: Alembic keeps it in global variables of its modules
_environment = threading.Lock()
logger = logging.getLogger("alembic.sqllocks")

StepFunction = Callable[[Any, MigrationContext], Iterable[RevisionStep]]


@dataclass(frozen=True, slots=True)
class _Look:
    """What a database was found to have and to lack."""

    engine: Engine | None
    heads: Revisions
    missing: bool


def apply_migrations(
    config: Config, revision: str = "heads", *, wait: Seconds | None = DEFAULT_WAIT
) -> MigrationResult:
    """Upgrade to ``revision`` under the lock ``migrations:apply``, and return what was done.

    Runs ``env.py`` once to look, as ``alembic current`` does: at the revision already, it takes no lock.
    Else it waits up to ``wait`` seconds for the lock (``LockTimeout``), runs ``env.py`` again, which reads
    the version anew, and proves the lock before and after each step. A loss ends the run with
    ``LeaseLost``, whose ``details["migration"]`` has the fields of the result; a step in a transaction is
    undone. Errors of revisions are passed on. The lock is kept in the database that ``env.py`` connects to,
    or in ``config.attributes["sqllocks.bind"]``.
    """
    return run(config, revision, wish(DEFAULT_KEY, DEFAULT_TTL, wait))


def run(config: Config, revision: str, wanted: Wish) -> MigrationResult:
    """Do the same with a lock of the caller's choice."""
    return _Run(config, ScriptDirectory.from_config(config), revision, wanted).run()


@dataclass(frozen=True, slots=True)
class _Run:
    """One call."""

    config: Config
    script: ScriptDirectory
    revision: str
    wanted: Wish
    progress: Progress = field(default_factory=Progress)

    def run(self) -> MigrationResult:
        """Look, and upgrade where something is missing."""
        looks = self._look()
        if not any(look.missing for look in looks):
            heads = tuple(sorted({head for look in looks for head in look.heads}))
            return MigrationResult(heads, heads, (), 0.0)
        engine = engine_for(self._bind(looks), caller="apply_migrations")
        try:
            with migration_lock(engine, self.wanted) as held:
                self.progress.waited = held.waited
                self._upgrade(MigrationGuard(self.wanted.key, held, engine))
        except LeaseLost as lost:
            lost.details["migration"] = self.progress.result().as_details()
            raise
        except Exception as error:
            if self.progress.partial is not None:
                error.add_note(
                    f"revision {self.progress.partial} may be applied in part: undo or finish that by hand"
                )
            raise
        return self.progress.result()

    def _look(self) -> list[_Look]:
        looks: list[_Look] = []

        def look(heads: Any, context: MigrationContext) -> Iterable[RevisionStep]:
            connection = context.connection
            engine = connection.engine if connection is not None else None
            looks.append(_Look(engine, tuple(heads), bool(self._steps(heads))))
            return ()

        # any guard in env.py is this one, which holds nothing
        with entered(MigrationGuard("", None, None)):
            self._environment(look, dont_mutate=True)
        return looks

    def _upgrade(self, guard: MigrationGuard) -> None:
        def steps(heads: Any, context: MigrationContext) -> Iterator[RevisionStep]:
            proof = guard.on_version_apply
            if proof not in context.on_version_apply_callbacks:
                context.on_version_apply_callbacks = (*context.on_version_apply_callbacks, proof)
            self.progress.begin(tuple(heads), context)
            for step in self._steps(heads):
                guard.prove(context)
                self.progress.step(step, context)
                yield step

        try:
            with entered(guard):
                self._environment(steps)
            self.progress.succeeded()
        except CommandError:
            # the version is not the expected one, because somebody else has the lock by now
            guard.check()
            raise
        finally:
            self.progress.end()

    def _steps(self, heads: Any) -> list[RevisionStep]:
        try:
            missing = list(self.script.iterate_revisions(self.revision, heads, implicit_base=True))
        except RevisionError as error:
            raise CommandError(str(error)) from error
        return [MigrationStep.upgrade_from_script(self.script.revision_map, each) for each in missing[::-1]]

    def _environment(self, fn: StepFunction, **options: Any) -> None:
        revision = self.revision
        with (
            _alone(self.wanted),
            EnvironmentContext(
                self.config, self.script, fn=fn, as_sql=False, destination_rev=revision, **options
            ),
        ):
            self.script.run_env()

    def _bind(self, looks: list[_Look]) -> Any:
        if BIND in self.config.attributes:
            return self.config.attributes[BIND]
        engine = next(look.engine for look in looks if look.engine is not None)
        # of an asyncio engine env.py shows the blocking side only, which works in its event loop alone
        return engine.url.set(drivername=engine.url.get_backend_name()) if engine.dialect.is_async else engine


@contextmanager
def _alone(wanted: Wish) -> Generator[None]:
    """Keep other threads of this process out, which must not hold the lock meanwhile."""
    limit = -1.0 if wanted.wait is None else min(max(wanted.wait, _SHORT), threading.TIMEOUT_MAX)
    if not _environment.acquire(blocking=False):
        logger.info("waiting for another thread of this process that uses Alembic")
        _wait_for_threads(wanted, limit)
    try:
        yield
    finally:
        _environment.release()


def _wait_for_threads(wanted: Wish, limit: float) -> None:
    if not _environment.acquire(timeout=limit):
        raise LockTimeout(
            f"no migration was applied: another thread of this process is still at it after {limit:g} s "
            f"({wanted.key!r})",
            details={"lock_key": wanted.key},
        )
