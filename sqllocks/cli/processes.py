"""What the system tells about processes, where it has ``/proc``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["VISIBLE", "Process", "descendants", "living", "members"]

_PROC = Path("/proc")
VISIBLE = (_PROC / "self" / "stat").exists()
"""Whether processes can be looked at here, as on Linux."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process; the start time tells it from a later one with the same number."""

    pid: int
    parent: int
    group: int
    started: int


def living() -> list[Process]:
    """Return the processes of the system but zombies; none where they cannot be looked at."""
    return list(_read_all()) if VISIBLE else []


def descendants(pid: int, processes: Iterable[Process]) -> list[Process]:
    """Return a process and those that descend from it, as far as their line of parents lives."""
    known = list(processes)
    family: set[int] = set()
    more = {pid}
    while more:
        family |= more
        more = {process.pid for process in known if process.parent in family} - family
    return [process for process in known if process.pid in family]


def members(group: int, processes: Iterable[Process]) -> list[Process]:
    """Return the processes of a process group."""
    return [process for process in processes if process.group == group]


def _read_all() -> Iterator[Process]:
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text(errors="replace")
            except OSError:
                continue  # it ended meanwhile
            # proc(5): the name is in parentheses and may hold any character
            state, parent, group, *rest = text.rpartition(")")[2].split()
            if state not in "ZX":
                yield Process(int(entry.name), int(parent), int(group), int(rest[16]))
