"""A team: processes that do the same thing at the same time, told by pipes."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from benchmarks import by_hand, own, peers
from benchmarks.contenders import Entry, Place
from benchmarks.turns import AWAKE, Ring, reason

PATIENCE = 60.0
SLACK = 0.05
"""Seconds from the word to the start, so that all start at the same moment."""


@dataclass
class Member:
    """One process, and what was said last."""

    pipe: Connection[Any, Any]
    process: Any


class Team:
    """Processes with one caller each."""

    def __init__(self, place: Place, size: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.members: list[Member] = []
        for number in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(place, number, theirs), daemon=True)
            process.start()
            self.members.append(Member(ours, process))
        self._heard(self.members)

    def tell(self, word: str, *arguments: Any, first: int | None = None) -> list[Any]:
        """Have the first members, or all, do something; return what each answers, or raise its error."""
        some = self.members[:first]
        for member in some:
            member.pipe.send((word, *arguments))
        return self._heard(some)

    def tell_one(self, number: int, word: str, *arguments: Any) -> Any:
        """Have one member do something."""
        self.members[number].pipe.send((word, *arguments))
        return self.heard(number)

    def heard(self, number: int) -> Any:
        """Return what one member answers."""
        return self._heard([self.members[number]])[0]

    def turn(self, label: str, seconds: float, first: int) -> list[float]:
        """Return the cycles a second that each did at the same time."""
        rates: list[float] = self.tell("turn", label, time.time() + SLACK, seconds, first=first)
        return rates

    @staticmethod
    def _heard(members: list[Member]) -> list[Any]:
        answers = []
        for member in members:
            if not member.pipe.poll(PATIENCE):
                raise TimeoutError("a process of the benchmark does not answer")
            answers.append(member.pipe.recv())
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    def close(self) -> None:
        """Let all processes end."""
        for member in self.members:
            with contextlib.suppress(OSError):
                member.pipe.send(("end",))
        for member in self.members:
            member.process.join(5)
            if member.process.is_alive():
                member.process.kill()


@contextlib.contextmanager
def team(place: Place, size: int) -> Iterator[Team]:
    """Start a team and end it."""
    made = Team(place, size)
    try:
        yield made
    finally:
        made.close()


def all_entries(place: Place) -> dict[str, Entry]:
    """Return every contender for a place by its label."""
    others, _ = peers.entries(place.server, redis=place.redis is not None)
    return {each.label: each for each in own.entries(place.server) + by_hand.entries(place.server) + others}


def _work(place: Place, number: int, pipe: Connection[Any, Any]) -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    hand = _Hand(place, number)
    pipe.send(None)
    while (said := pipe.recv())[0] != "end":
        word, *arguments = said
        try:
            pipe.send(getattr(hand, word)(*arguments))
        except Exception as error:
            pipe.send(RuntimeError(reason(error)))


class _Hand:
    """What one process of the team can be told to do."""

    def __init__(self, place: Place, number: int) -> None:
        self._entries = all_entries(place)
        self._ring = Ring(place)
        self._number = number
        self._opened: dict[str, Any] = {}
        self._taken: Any = None

    def open(self, label: str) -> None:
        self._opened[label] = self._ring.open(self._entries[label], 1)

    def turn(self, label: str, start: float, seconds: float) -> float:
        made, keys = self._opened[label], [f"process:{self._number}"]
        self._ring.rush(made, keys, AWAKE)
        time.sleep(max(0.0, start - time.time()))
        return self._ring.rush(made, keys, seconds)

    def take(self, label: str, key: str) -> None:
        """Take a free key."""
        made = self._opened[label]
        self._taken = self._ring.do(made, "take", 0, key)
        if not self._taken:
            raise RuntimeError(f"{key} is not free")

    def give(self, label: str, key: str) -> float:
        """Give it back; return the moment before the call."""
        began = time.monotonic()
        self._ring.do(self._opened[label], "give", 0, key, self._taken)
        return began

    def wait(self, label: str, key: str) -> float:
        """Wait for the key, give it back, and return the moment when it was got."""
        made = self._opened[label]
        taken = self._ring.do(made, "wait", 0, key)
        got = time.monotonic()
        self._ring.do(made, "give", 0, key, taken)
        return got

    def close(self, label: str) -> None:
        self._ring.do(self._opened.pop(label), "close")
