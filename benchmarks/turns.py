"""Turns: for a short while the callers take and give back their keys as fast as they can."""

from __future__ import annotations

import asyncio
import gc
import itertools
import statistics
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.contenders import OURS, Asyncio, AsyncioLoop, Blocking, BlockingLoop, Entry, Family, Place

WARM_UP = 0.05
AWAKE = 0.005


@dataclass(frozen=True)
class Settings:
    """How much is measured."""

    turns: int = 5
    seconds: float = 0.2
    quick: bool = False

    def length(self, family: Family, callers: int) -> float:
        """Return the seconds of a turn: longer where a number to reach hangs on it."""
        if family is Family.NOTHING:
            return self.seconds / 4
        exact = family in OURS and callers in (1, 64, 256)
        return self.seconds if exact else self.seconds / 2

    def times(self, family: Family, callers: int) -> int:
        """Return how many turns there are: fewer where no number to reach hangs on them."""
        if callers not in (1, 64, 256):
            return min(self.turns, 2)
        return self.turns if family in OURS else min(self.turns, 3)


QUICK = Settings(turns=2, seconds=0.03, quick=True)


@dataclass
class Row:
    """One line of a table: a contender's values in one question, one for each turn."""

    question: str
    server: str
    case: str
    label: str
    family: str
    unit: str
    values: list[float] = field(default_factory=list)
    note: str = ""
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def median(self) -> float | None:
        """Return the median of the turns, or None where there were none."""
        return statistics.median(self.values) if self.values else None

    @property
    def spread(self) -> float | None:
        """Return the distance of the extremes as a share of the median."""
        if not self.values or not self.median:
            return None
        return (max(self.values) - min(self.values)) / self.median

    def as_json(self) -> dict[str, Any]:
        """Return what goes into the JSON file."""
        return {**asdict(self), "median": self.median, "spread": self.spread}


class Ring:
    """Contenders that are open side by side and take turns; one event loop serves the asyncio ones."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._runner = asyncio.Runner()

    def open(self, entry: Entry, callers: int) -> Blocking | Asyncio:
        """Make a contender and open it."""
        made = entry.make(self.place, callers)
        self.do(made, "open")
        return made

    def do(self, made: Blocking | Asyncio, method: str, *arguments: Any) -> Any:
        """Call a method of either form and return its result."""
        called = getattr(made, method)(*arguments)
        return self._runner.run(called) if isinstance(made, Asyncio) else called

    def run(self, work: Coroutine[Any, Any, float]) -> float:
        """Run a coroutine on the loop of the asyncio contenders."""
        return self._runner.run(work)

    def check_exclusion(self, entry: Entry) -> None:
        """Raise AssertionError unless the second of two contenders gets a key when the first gave it back."""
        first, second = self.open(entry, 1), self.open(entry, 1)
        key = f"exclusion:{entry.label}"
        taken = self.do(first, "take", 0, key)
        assert taken, "a free key was refused"
        assert not self.do(second, "take", 0, key), "two were granted one key"
        self.do(first, "give", 0, key, taken)
        taken = self.do(second, "take", 0, key)
        assert taken, "a key that was given back was refused"
        self.do(second, "give", 0, key, taken)
        self.do(first, "close")
        self.do(second, "close")

    def turn(self, made: Blocking | Asyncio, keys: Sequence[str], seconds: float) -> float:
        """Return the cycles a second of one caller for each key."""
        gc.collect()
        # connections that were closed while others had their turn are opened again
        self.rush(made, keys[:2], AWAKE)
        return self.rush(made, keys, seconds)

    def rush(self, made: Blocking | Asyncio, keys: Sequence[str], seconds: float) -> float:
        """Return the same, without preparation."""
        if isinstance(made, AsyncioLoop):
            return self._runner.run(_async_loop(made, keys, seconds))
        if isinstance(made, Asyncio):
            return self._runner.run(_tasks(made, keys, seconds))
        if isinstance(made, BlockingLoop):
            return _loop(made, keys, seconds)
        return _threads(made, keys, seconds)

    def close(self) -> None:
        """End the event loop."""
        self._runner.close()


def compare(
    ring: Ring,
    entries: Sequence[Entry],
    callers: int,
    settings: Settings,
    question: str,
    case: str,
) -> list[Row]:
    """Measure contenders in turn; one that fails says why in its row."""
    server = ring.place.server
    rows = {
        each.label: Row(question, server, case, each.label, each.family, "cycles/s", note=each.note)
        for each in entries
    }
    keys = [f"{question}:{n}" for n in range(callers)]
    families = {each.label: each.family for each in entries}
    opened: dict[str, Blocking | Asyncio] = {}
    for entry in entries:
        with told(rows[entry.label]):
            opened[entry.label] = ring.open(entry, callers)
            ring.turn(opened[entry.label], keys, WARM_UP)
    for number in range(settings.turns):
        labels = list(opened)
        for label in labels[number % len(labels) :] + labels[: number % len(labels)]:
            if number < settings.times(families[label], callers) and not rows[label].note.startswith(
                "failed"
            ):
                with told(rows[label]):
                    seconds = settings.length(families[label], callers)
                    rows[label].values.append(ring.turn(opened[label], keys, seconds))
    for label, made in opened.items():
        with told(rows[label]):
            ring.do(made, "close")
    return list(rows.values())


class told:  # noqa: N801  used as a block
    """A failure of one contender becomes the note of its row."""

    def __init__(self, row: Row) -> None:
        self._row = row

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        if not isinstance(error, Exception):
            return False
        self._row.note = f"failed: {reason(error)}"
        print(f"  {self._row.label}: {self._row.note}", file=sys.stderr)
        return True


def reason(error: BaseException) -> str:
    """Return one line on an error, the first where there are several."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]:.160}".rstrip(": ")


def excluding(ring: Ring, entries: Sequence[Entry]) -> tuple[list[Entry], list[Row]]:
    """Return the entries whose locks exclude, and a row for each that does not or cannot be tried."""
    good, failed = [], []
    for entry in entries:
        row = Row("exclusion", ring.place.server, "", entry.label, entry.family, "")
        with told(row):
            if entry.family is not Family.NOTHING:
                ring.check_exclusion(entry)
            good.append(entry)
        if row.note:
            failed.append(row)
    return good, failed


def _threads(made: Blocking, keys: Sequence[str], seconds: float) -> float:
    if len(keys) == 1:
        began = time.perf_counter()
        count = _calls(made, 0, keys[0], seconds)
        return count / (time.perf_counter() - began)
    counts = [0] * len(keys)
    ends = [0.0] * len(keys)
    errors: list[Exception] = []
    barrier = threading.Barrier(len(keys) + 1)

    def call(number: int) -> None:
        barrier.wait()
        try:
            counts[number] = _calls(made, number, keys[number], seconds)
        except Exception as error:
            errors.append(error)
        ends[number] = time.perf_counter()

    threads = [threading.Thread(target=call, args=(number,)) for number in range(len(keys))]
    for thread in threads:
        thread.start()
    barrier.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return sum(counts) / (max(ends) - began)


def _calls(made: Blocking, number: int, key: str, seconds: float) -> int:
    until = time.perf_counter() + seconds
    count = 0
    while time.perf_counter() < until:
        taken = made.take(number, key)
        if taken:
            made.give(number, key, taken)
            count += 1
    return count


async def _tasks(made: Asyncio, keys: Sequence[str], seconds: float) -> float:
    async def call(number: int) -> int:
        count, key = 0, keys[number]
        while time.perf_counter() < until:
            taken = await made.take(number, key)
            if taken:
                await made.give(number, key, taken)
                count += 1
        return count

    began = time.perf_counter()
    until = began + seconds
    return sum(await all_of(call, len(keys))) / (time.perf_counter() - began)


async def all_of(call: Callable[[int], Coroutine[Any, Any, int]], callers: int) -> list[int]:
    """Return what each caller did; the first that fails ends the others, so that none runs on."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(call(number)) for number in range(callers)]
    return [task.result() for task in tasks]


def _loop(made: BlockingLoop, keys: Sequence[str], seconds: float) -> float:
    began = time.perf_counter()
    for rounds in _rounds(began + seconds):
        taken = made.take_all(keys)
        made.give_all(keys, _all(taken))
        done = rounds
    return done * len(keys) / (time.perf_counter() - began)


async def _async_loop(made: AsyncioLoop, keys: Sequence[str], seconds: float) -> float:
    began = time.perf_counter()
    for rounds in _rounds(began + seconds):
        taken = await made.take_all(keys)
        await made.give_all(keys, _all(taken))
        done = rounds
    return done * len(keys) / (time.perf_counter() - began)


def _rounds(until: float) -> Iterator[int]:
    for number in itertools.count(1):
        yield number
        if time.perf_counter() >= until:
            return


def _all(taken: list[Any]) -> list[Any]:
    if not all(taken):
        raise RuntimeError("a key was refused")
    return taken
