"""Checks the demo: from what the holders told, was there ever more than one?"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from sqllocks.cli.demo.events import Event, Kind
from sqllocks.cli.demo.ledger import Written

__all__ = ["Counts", "History", "Window"]


@dataclass(slots=True)
class Window:
    """One grant: the time in which its holder took itself for the only one, by the shared clock."""

    worker: int
    token: int
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Counts:
    """What the demo ends with."""

    grants: int
    writes: int
    overlaps: int
    refused: int
    kills: int
    freezes: int
    troubles: int


class History:
    """What happened, in the order in which it was told; the judgement does not depend on that order."""

    def __init__(self) -> None:
        self.windows: list[Window] = []
        self.kills = 0
        self.freezes = 0
        self._open: dict[int, Window] = {}
        self._written: list[int] = []
        self._refused: list[int] = []
        self._troubles = 0

    def add(self, event: Event) -> None:
        """Take note of an event."""
        match event.kind:
            case Kind.GRANTED:
                window = Window(event.worker, event.token, event.at, event.until)
                self.windows.append(window)
                self._open[event.pid] = window
            case Kind.RENEWED:
                window = self._open[event.pid]
                window.end = max(window.end, event.until)
            case Kind.RELEASED:
                # it stopped trusting before it sent the release
                window = self._open.pop(event.pid)
                window.end = min(window.end, event.at)
            case Kind.WROTE:
                self._written.append(event.token)
            case Kind.REFUSED:
                self._refused.append(event.token)
            case Kind.TROUBLE:
                self._troubles += 1
            case _:
                pass

    def counts(self) -> Counts:
        """Return the counts so far."""
        return Counts(
            grants=len(self.windows),
            writes=len(self._written),
            overlaps=self._overlaps(),
            refused=len(self._refused),
            kills=self.kills,
            freezes=self.freezes,
            troubles=self._troubles,
        )

    def was_refused(self, token: int) -> bool:
        """Return whether a write under that token was refused."""
        return token in self._refused

    def complaints(self, *, at_least: int, frozen: int | None, ledger: Written) -> list[str]:
        """Return what is not as promised; ``frozen`` is the token of the holder that was frozen."""
        counts = self.counts()
        found = {
            f"two holders trusted their leases at the same time ({counts.overlaps} times)": counts.overlaps
            > 0,
            "tokens did not rise from grant to grant": not self._tokens_rise(),
            f"only {counts.grants} grants, at least {at_least} were expected": counts.grants < at_least,
            "no holder was killed": not self.kills,
            "no holder was frozen": not self.freezes,
            "the late write of the frozen holder was not refused": frozen is None
            or not self.was_refused(frozen),
            "the ledger does not have the writes that were told": not self._agrees(ledger),
        }
        return [text for text, wrong in found.items() if wrong]

    def _trusted(self) -> list[Window]:
        """Return the windows in order; one that was over before its answer came was never used."""
        return sorted(
            (window for window in self.windows if window.start < window.end), key=lambda each: each.start
        )

    def _overlaps(self) -> int:
        overlaps = 0
        end = float("-inf")
        for window in self._trusted():
            overlaps += window.start < end
            end = max(end, window.end)
        return overlaps

    def _tokens_rise(self) -> bool:
        tokens = [window.token for window in self._trusted()]
        each_once = len({window.token for window in self.windows}) == len(self.windows)
        return each_once and all(a < b for a, b in pairwise(tokens))

    def _agrees(self, ledger: Written) -> bool:
        # a killed worker may have written and not told, and an error may have hidden an answer
        untold = self.kills + self._troubles
        told = len(self._written)
        return told <= ledger.writes <= told + untold and ledger.token >= max(self._written, default=0)
