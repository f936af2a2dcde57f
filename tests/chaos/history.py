"""What happened in a run: one JSON line for each event, in one file for each process."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from sqllocks.runtime.clock import now

__all__ = ["Event", "Recorder", "Write", "load", "now"]


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that a process saw; times are of the monotonic clock that all processes share.

    ``started``, ``stopped``     a worker process began, and came to its end in order
    ``grant``                    a lease was granted (asked at ``since``), with ``seconds`` as its ttl
    ``busy``, ``unknown``        the answers that are no grant, by ``note`` of which call
    ``trust``                    the holder looked at ``since`` and found that it holds the key
    ``extended``                 a new expiry (asked at ``since``), with ``seconds`` as its ttl
    ``loss``                     the holder was told of the loss
    ``end``                      the holder is through with the lease, by ``note`` how
    ``written``                  a guarded write was committed, ``number`` is the counter's new value
    ``conflict``                 a guarded transaction was refused or failed, by ``note`` why
    ``error``                    a call of the library raised what is not the library's
    ``fault``                    the injector did ``note`` to ``worker`` or ``key``
    ``killed``, ``died``         a worker process was ended by the injector, or by itself
    ``broken``                   an operator may have ended the lease of ``key`` since ``since``
    ``outage``                   nothing could reach ``worker`` from ``since`` to ``at``
    """

    kind: str
    at: float
    worker: str
    key: str = ""
    lease: str = ""
    token: int = 0
    since: float = 0.0
    seconds: float = 0.0
    number: int = 0
    note: str = ""

    @property
    def line(self) -> bytes:
        """Return the event as a line of a file, without what is empty."""
        stated = {name: value for name, value in asdict(self).items() if value or name == "at"}
        return json.dumps(stated).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class Write:
    """One row of the guarded table: the counter's new value, and the token under which it was written."""

    key: str
    number: int
    token: int
    worker: str


class Recorder:
    """Appends events to the file of one process; safe across threads, and a kill tears no earlier line."""

    def __init__(self, path: Path, worker: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._worker = worker

    def tell(self, kind: str, *, worker: str = "", **what: Any) -> None:
        """Record an event of this moment."""
        what.setdefault("at", now())
        os.write(self._file, Event(kind, worker=worker or self._worker, **what).line)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def load(directory: Path) -> list[Event]:
    """Return all events of a run in the order of their times."""
    events = [event for path in directory.glob("*.jsonl") for event in _read(path.read_bytes().splitlines())]
    return sorted(events, key=lambda event: event.at)


def _read(lines: Iterable[bytes]) -> Iterator[Event]:
    known = {each.name for each in fields(Event)}
    for line in lines:
        try:
            found = json.loads(line)
        except ValueError:  # torn by a kill
            continue
        yield Event(**{name: value for name, value in found.items() if name in known})
