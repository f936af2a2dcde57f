"""What a server can and cannot do for locks, as ``diagnose`` and ``sqllocks doctor`` tell it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["IN_MEMORY", "LEVELS", "Diagnosis", "Finding", "Level"]

Level: TypeAlias = Literal["ok", "note", "warning", "failure"]
LEVELS: tuple[Level, ...] = ("ok", "note", "warning", "failure")
"""From the best to the worst."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: ``code`` is for programs, ``message`` and ``remedy`` are for people."""

    level: Level
    code: str
    message: str
    remedy: str = ""

    def __str__(self) -> str:
        remedy = f" Remedy: {self.remedy}." if self.remedy else ""
        return f"{self.level}: {self.message}.{remedy}"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All that was found, in the order in which it was looked at.

    ``"failure"``: locks do not work. ``"warning"``: they work, and a promise is weaker than it should be, or
    a kind of lock cannot be had. ``"note"``: worth knowing.
    """

    findings: tuple[Finding, ...]

    @property
    def level(self) -> Level:
        """The worst level of all findings."""
        levels = {finding.level for finding in self.findings}
        for level in reversed(LEVELS):
            if level in levels:
                return level
        return "ok"

    @property
    def ok(self) -> bool:
        """Whether there are notes at most."""
        return self.level in ("ok", "note")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The findings that are warnings."""
        return tuple(finding for finding in self.findings if finding.level == "warning")

    @property
    def failures(self) -> tuple[Finding, ...]:
        """The findings that are failures."""
        return tuple(finding for finding in self.findings if finding.level == "failure")

    def __str__(self) -> str:
        return "\n".join(map(str, self.findings))


IN_MEMORY = Diagnosis(
    (Finding("note", "memory", "locks are in the memory of this process, and exclude no other process"),)
)
