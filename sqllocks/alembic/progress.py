"""How far a run of migrations came, as far as it was committed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from alembic.runtime.migration import MigrationContext, RevisionStep
from sqlalchemy import Connection, event

__all__ = ["MigrationResult", "Progress", "Revisions"]

Revisions = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MigrationResult:
    """What a run did.

    ``applied`` are the revisions that were applied and committed, in their order; ``waited`` is the time
    in seconds until the lock was granted. ``partial`` is the revision whose effects may remain without
    it being noted as applied: where DDL is not transactional, or after a commit in its middle.
    """

    from_revisions: Revisions
    to_revisions: Revisions
    applied: Revisions
    waited: float
    partial: str | None = None

    def as_details(self) -> dict[str, Any]:
        """Return the fields as plain values, for ``details["migration"]`` of an error."""
        return asdict(self)


class Progress:
    """Follows a run by Alembic's callback after each step and SQLAlchemy's event of each commit."""

    def __init__(self) -> None:
        self.waited = 0.0
        self._before: set[str] = set()
        self._after: set[str] = set()
        self._heads: set[str] = set()
        self._applied: list[str] = []
        self._uncommitted: list[str] = []
        self._current: str | None = None
        self.partial: str | None = None
        """The revision that a failure now would leave half done."""
        self._watched: list[Connection] = []

    def begin(self, heads: Revisions, context: MigrationContext) -> None:
        """Follow one database; a run may have several."""
        self._before |= set(heads)
        self._heads |= set(heads)
        self._after |= set(heads)
        context.on_version_apply_callbacks = (*context.on_version_apply_callbacks, self._done)
        if context.connection is not None:
            event.listen(context.connection, "commit", self._committed)
            self._watched.append(context.connection)

    def step(self, step: RevisionStep, context: MigrationContext) -> None:
        """Note that a step begins."""
        self._current = step.revision.revision
        if not context.impl.transactional_ddl:
            self.partial = self._current

    def end(self) -> None:
        """Stop following; what was not committed by then was not applied."""
        for connection in self._watched:
            event.remove(connection, "commit", self._committed)
        self._watched.clear()

    def succeeded(self) -> None:
        """Note the end of a run without an error: what is not committed is the caller's to commit."""
        self._settle()
        self.partial = None

    def result(self) -> MigrationResult:
        """Return what is known now."""
        before, after = (tuple(sorted(heads)) for heads in (self._before, self._after))
        return MigrationResult(before, after, tuple(self._applied), self.waited, self.partial)

    def _done(self, *, ctx: MigrationContext, step: Any, heads: set[str], **_: Any) -> None:
        self._uncommitted.append(str(step.up_revision_id))
        self._heads = set(heads)
        self._current = None

    def _committed(self, _connection: Connection) -> None:
        self._settle()
        # in the middle of a step, as before an autocommit block: no rollback undoes that part of it
        self.partial = self._current

    def _settle(self) -> None:
        self._applied += self._uncommitted
        self._uncommitted.clear()
        self._after = set(self._heads)
