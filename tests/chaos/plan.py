"""What a run is to do, the same for the runner and its worker processes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SABOTAGES = ("", "ignore-expiry", "no-guard", "busy-for-unknown")
"""Faults of a worker's own, by which the checker is checked."""


@dataclass(frozen=True)
class Plan:
    """One run."""

    server: str
    directory: Path
    seconds: float = 60.0
    seed: int = 1
    workers: int = 6
    lanes: int = 2
    """How many threads or tasks use one worker's provider at the same time."""
    keys: tuple[str, ...] = ("a", "b", "c", "d", "e")
    ttl: tuple[float, float] = (0.5, 1.5)
    pace: float = 0.4
    """Mean seconds between two faults."""
    own_server: bool = False
    """Whether to start a server of the run's own, which is then restarted and crashed as well."""
    faults: tuple[str, ...] = ()
    """The faults to choose among; all that the server allows where it is empty."""
    progress: int = 3
    """How often each key must be granted."""
    sabotage: str = ""
