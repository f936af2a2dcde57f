"""Being told of releases: one listening session for all that wait in this process.

The session is opened when somebody waits and closed soon after the last one has gone. It registers
each waited key at the server (see ``dialects.postgresql_waiting``), so that a release sends something
only where somebody waits. While it is not there, waiters simply look more often.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import Protocol

from sqllocks.dialects.postgresql_waiting import BACKEND, EVERYBODY, register, unregister
from sqllocks.runtime import clock

__all__ = ["ANSWER_PATIENCE", "Channel", "Hub", "KeyWatch"]

logger = logging.getLogger("sqllocks")

LINGER = 5.0
"""Seconds for which the session stays after the last waiter."""
PING = 10.0
"""Seconds after which a silent session is asked whether it is still there."""
ANSWER_PATIENCE = 2.0
"""Seconds after which a session that does not answer is given up."""
RETRY = 0.01
"""Seconds until a registration that met a release in flight is tried again."""
FIRST_BACKOFF = 0.25
LAST_BACKOFF = 30.0
MOST_WATCHED = 64
"""Keys that are registered at once: what the server's lock table sets aside for a session by default.
Those who wait for more keys look more often."""


class Channel(Protocol):
    """A listening session. Any exception of it means that it is of no use any more."""

    async def open(self) -> bool:
        """Connect and listen; ``False`` where a pooler is in between, which hands on no notifications."""
        ...

    async def run(self, sql: str) -> list[int]:
        """Run a statement; return the first column."""
        ...

    async def wait(self, seconds: float) -> None:
        """Sleep until something arrived, somebody called ``poke``, or the time is over; open or not."""
        ...

    def poke(self) -> None:
        """Wake it, from any thread and at any time."""
        ...

    def arrived(self) -> list[str]:
        """Take the payloads that arrived."""
        ...

    async def close(self) -> None:
        """End the session; raises nothing. It can be opened again."""
        ...

    def end(self) -> None:
        """Give up what ``poke`` and ``wait`` need."""
        ...


class KeyWatch:
    """One request to be told of a signal."""

    def __init__(self, hub: Hub, number: int, alarm: Callable[[], None]) -> None:
        self._hub = hub
        self.number = number
        self.alarm = alarm

    @property
    def active(self) -> bool:
        return self._hub.registered(self.number)

    def close(self) -> None:
        self._hub.unwatch(self)


class Hub(ABC):
    """Who is to be told of which signals, and the activity that keeps a session for it.

    The activity begins with the first watch (``_start``) and runs ``serve`` on a task or thread.
    """

    def __init__(self, *, usable: bool) -> None:
        self._usable = usable
        self._watches: dict[int, set[KeyWatch]] = {}
        self._channel: Channel | None = None
        self.forget()

    def forget(self) -> object:
        """Begin anew, and return what there was: a forked child has not its parent's watches nor session."""
        former = (self._watches, self._channel)
        self._mutex = threading.Lock()
        self._watches = {}
        self._registered: set[int] = set()
        self._channel = None
        self._closing = False
        self._told_of_failure = False
        return former

    def watch(self, number: int, alarm: Callable[[], None]) -> KeyWatch:
        """Have ``alarm`` called when the signal arrives, or when signals may be missed; never waits."""
        watch = KeyWatch(self, number, alarm)
        if not self._usable:
            return watch
        channel: Channel | None = None
        with self._mutex:
            if number not in self._watches and len(self._watches) >= MOST_WATCHED:
                return watch
            self._watches.setdefault(number, set()).add(watch)
            self._closing = False
            if self._channel is None:
                channel = self._channel = self._new_channel()
            else:
                self._channel.poke()
        if channel is not None:
            try:
                self._start(channel)
            except RuntimeError as error:  # no more threads
                self._tell(error)
                with self._mutex:
                    self._channel = None
                channel.end()
        return watch

    def unwatch(self, watch: KeyWatch) -> None:
        """Take a watch back; it may be one that was never entered."""
        with self._mutex:
            watches = self._watches.get(watch.number, set())
            watches.discard(watch)
            if not watches and self._watches.pop(watch.number, None) is not None and self._channel:
                self._channel.poke()

    def registered(self, number: int) -> bool:
        """Return whether the server knows that this process waits for the signal."""
        registered = self._registered
        return number in registered and EVERYBODY in registered

    def _end(self) -> bool:
        """Have the session closed now unless somebody waits; ``False`` where somebody does."""
        with self._mutex:
            if self._watches:
                return False
            self._closing = True
            if self._channel is not None:
                self._channel.poke()
            return True

    @abstractmethod
    def _new_channel(self) -> Channel: ...

    @abstractmethod
    def _start(self, channel: Channel) -> None: ...

    async def serve(self, channel: Channel) -> None:
        """Keep a session until nobody has waited for a while."""
        backoff = FIRST_BACKOFF
        try:
            while True:
                began = clock.now()
                if await self._session(channel):
                    return
                lasted = clock.now() - began > LAST_BACKOFF
                backoff = FIRST_BACKOFF if lasted else min(backoff * 2, LAST_BACKOFF)
                if await self._rest(channel, backoff):
                    return
        finally:
            with self._mutex:
                if self._channel is channel:
                    self._channel = None
            channel.end()

    async def _session(self, channel: Channel) -> bool:
        """Open a session and use it; ``False`` where it failed and another one may do."""
        try:
            if await channel.open():
                self._told_of_failure = False
                await self._listen(channel)
            else:
                self._give_up()
        except Exception as error:  # noqa: BLE001 - each driver has its own
            self._tell(error)
            return False
        else:
            return True
        finally:
            self._unregister(channel)
            await channel.close()

    async def _listen(self, channel: Channel) -> None:
        idle_since = asked = clock.now()
        while True:
            new, old = self._changes()
            if old:
                await channel.run(unregister(old))
            if new:
                self._register(await channel.run(register(new)))
            if not new and not old and clock.now() - asked >= PING:
                await channel.run(BACKEND)
                asked = clock.now()
            elif new or old:
                asked = clock.now()
            if self._watches:
                idle_since = clock.now()
            elif self._over(channel, idle_since):
                return
            await channel.wait(self._pause(new, idle_since))
            self._ring(channel.arrived())

    def _changes(self) -> tuple[set[int], set[int]]:
        """Return the signals to register, and those that are from now on not registered any more."""
        with self._mutex:
            wanted = {EVERYBODY, *self._watches} if self._watches else set[int]()
            old = self._registered - wanted
            self._registered = self._registered - old
            return wanted - self._registered, old

    def _register(self, got: Collection[int]) -> None:
        with self._mutex:
            self._registered = self._registered | set(got)

    def _pause(self, new: Collection[int], idle_since: float) -> float:
        if not self._registered.issuperset(new):
            return RETRY
        if not self._watches:
            return max(idle_since + LINGER - clock.now(), 0.0)
        return PING

    def _over(self, channel: Channel, idle_since: float) -> bool:
        with self._mutex:
            over = not self._watches and (self._closing or clock.now() - idle_since >= LINGER)
            if over and self._channel is channel:
                self._channel = None
                self._registered = set()
            return over

    def _ring(self, payloads: Collection[str]) -> None:
        with self._mutex:
            called: list[KeyWatch] = []
            for payload in set(payloads):
                if payload == str(EVERYBODY):
                    called = [watch for watches in self._watches.values() for watch in watches]
                    break
                called += self._watches.get(_number(payload), ())
        for watch in called:
            watch.alarm()

    def _unregister(self, channel: Channel) -> None:
        """Nothing is certain to be told any more: have everybody look."""
        with self._mutex:
            if self._channel is not channel:  # another session has taken over, or nobody waits
                return
            was_there = bool(self._registered)
            self._registered = set()
        if was_there:
            self._ring([str(EVERYBODY)])

    async def _rest(self, channel: Channel, seconds: float) -> bool:
        """Pause before another try, and return whether nobody waits any more."""
        until = clock.now() + seconds
        while True:
            if self._over(channel, 0.0):
                return True
            left = until - clock.now()
            if left <= 0:
                return False
            await channel.wait(left)

    def _give_up(self) -> None:
        self._usable = False
        with self._mutex:
            self._watches = {}
        logger.info("a pooler stands before the database: waiters ask it in short intervals")

    def _tell(self, error: Exception) -> None:
        level = logging.DEBUG if self._told_of_failure else logging.WARNING
        self._told_of_failure = True
        logger.log(level, "no session listens for releases, waiters ask more often: %s", self._message(error))

    @abstractmethod
    def _message(self, error: Exception) -> str: ...


def _number(payload: str) -> int:
    """Return the signal; anybody may send to the channel, so it may be none."""
    try:
        return int(payload)
    except ValueError:
        return EVERYBODY
