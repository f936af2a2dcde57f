"""Session locks of the library in blocking style, here and in other processes."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sqllocks import AsyncSqlLocker, SqlLocker
from sqllocks.naming import LockNames
from tests.conformance.observing import Observer
from tests.scenarios import jobs
from tests.scenarios.targets import Target

PATIENCE = 60.0
SESSION_IN_POSTGRESQL = (
    "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND mode = 'ExclusiveLock'"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND objsubid = 1 AND ((classid::bigint << 32) | objid::bigint) = :number"
)


@dataclass(frozen=True, slots=True)
class Taken:
    """A lock that a process got: its token, and when, by the clock that all processes share."""

    token: int
    moment: float


class Held:
    """One lock that this process holds or held."""

    def __init__(self, lock: Any, locker: Locker) -> None:
        self.lock = lock
        self._locker = locker
        self.losses: list[float] = []
        lock.on_lost(self._lose)

    def _lose(self) -> None:
        self.losses.append(time.monotonic())

    @property
    def token(self) -> int:
        return int(self.lock.fencing_token or 0)

    def proven(self) -> bool:
        """Ask the server."""
        return bool(self._locker.do(self.lock.held))

    def unlock(self) -> bool:
        return bool(self._locker.do(self.lock.unlock))


class Locker:
    """A locker, asked in blocking style whatever its form."""

    def __init__(self, target: Target, bind: Any = None, **options: Any) -> None:
        self.asyncio = target.asyncio
        plain = not target.setup and not target.connect_args
        bind = bind or (target.address if plain else target.engine())
        form: Any = AsyncSqlLocker if target.asyncio else SqlLocker
        self.locker = form(bind, holder=target.holder, **options)

    def do(self, method: Callable[..., Any], /, *arguments: Any, **options: Any) -> Any:
        """Call a method, in the asyncio form on the loop of the process."""
        if not self.asyncio:
            return method(*arguments, **options)

        async def work() -> Any:
            return await method(*arguments, **options)

        return jobs.clients.loop.run(work())

    def lock(self, key: str, *, wait: float | None = None) -> Held:
        return Held(self.do(self.locker.lock, key, wait=wait), self)

    def try_lock(self, key: str) -> Held | None:
        lock = self.do(self.locker.try_lock, key)
        return None if lock is None else Held(lock, self)

    def close(self, timeout: float = 0.1) -> None:
        self.do(self.locker.aclose if self.asyncio else self.locker.close, timeout)

    def __enter__(self) -> Locker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# -- what other processes are told to do

_lockers: dict[tuple[Target, str], Locker] = {}
_held: dict[str, Held] = {}
_blocks: dict[str, Block] = {}


def locker_of(target: Target, name: str = "", **options: Any) -> Locker:
    """Return the process's locker of a name, made at its first use with these options."""
    if (target, name) not in _lockers:
        _lockers[target, name] = Locker(target, **options)
    return _lockers[target, name]


def open_locker(target: Target, name: str = "", **options: Any) -> int:
    """Open a locker's session; return the number of the process."""
    locker = locker_of(target, name, **options)
    locker.lock(f"warm up {os.getpid()} {name}").unlock()
    return os.getpid()


def take(target: Target, key: str, *, wait: float | None = None, name: str = "") -> Taken:
    """Wait for a lock and keep it."""
    _held[key] = locker_of(target, name).lock(key, wait=wait)
    return Taken(_held[key].token, time.monotonic())


def take_all(target: Target, keys: list[str], *, wait: float, name: str = "") -> list[Taken]:
    """Wait for several locks at once and keep them; tell when each was granted."""
    found: dict[str, Taken] = {}

    def work(key: str) -> None:
        found[key] = take(target, key, wait=wait, name=name)

    threads = [threading.Thread(target=work, args=(key,)) for key in keys]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    return [found[key] for key in keys]


def try_lock(target: Target, key: str, *, name: str = "") -> bool:
    """Take a lock with zero wait and give it back; tell whether it was granted."""
    held = locker_of(target, name).try_lock(key)
    return held is not None and held.unlock()


def try_each(target: Target, keys: list[str]) -> list[bool]:
    """Try each key in turn and give back what was granted."""
    return [try_lock(target, key) for key in keys]


def give_back(key: str) -> bool:
    return _held[key].unlock()


def proven(key: str) -> bool:
    """Ask the server whether the lock is held."""
    return _held[key].proven()


@dataclass
class Facts:
    """What a lock says of itself, and when, without a question to the database."""

    lost: bool
    check: str
    losses: list[float] = field(default_factory=list)


def facts(key: str) -> Facts:
    """Return what a lock says of itself."""
    lock = _held[key].lock
    lost = lock.lost
    try:
        lock.check()
    except Exception as error:
        return Facts(lost, type(error).__name__, _held[key].losses)
    return Facts(lost, "", _held[key].losses)


@dataclass
class Ending:
    """How a block ended."""

    error: str = ""
    text: str = ""
    notes: str = ""
    losses: list[float] = field(default_factory=list)
    lost: bool = False
    check: str = ""
    proven: bool | None = None


class Block:
    """A ``with`` block around a session lock, in the form of its locker, whose body waits to be told."""

    def __init__(self, locker: Locker, key: str, *, fails: bool) -> None:
        self.ending = Ending()
        self.leave = threading.Event()
        self.entered = threading.Event()
        self._locker = locker
        self._key = key
        self._fails = fails
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        assert self.entered.wait(PATIENCE)

    def _run(self) -> None:
        try:
            if self._locker.asyncio:
                self._locker.do(self._asynchronously)
            else:
                with self._locker.locker.lock(self._key, wait=10) as lock:
                    self._watch(lock)
                    self.leave.wait(PATIENCE)
                    self._look(lock)
                    self.ending.proven = lock.held()
                    self._fail()
        except Exception as error:
            self.ending.error = type(error).__name__
            self.ending.text = str(error)
            self.ending.notes = " ".join(getattr(error, "__notes__", ()))

    async def _asynchronously(self) -> None:
        async with await self._locker.locker.lock(self._key, wait=10) as lock:
            self._watch(lock)
            try:
                await asyncio.to_thread(self.leave.wait, PATIENCE)
            finally:  # a loss cancels the body
                self._look(lock)
                self._fail()

    def _watch(self, lock: Any) -> None:
        lock.on_lost(lambda: self.ending.losses.append(time.monotonic()))
        self.entered.set()

    def _look(self, lock: Any) -> None:
        self.ending.lost = lock.lost
        try:
            lock.check()
        except Exception as error:
            self.ending.check = type(error).__name__

    def _fail(self) -> None:
        if self._fails:
            raise ValueError("body")


def begin_block(target: Target, key: str, *, fails: bool, name: str = "") -> None:
    """Enter a block whose body waits until ``end_block``."""
    _blocks[key] = Block(locker_of(target, name), key, fails=fails)


def block_losses(key: str) -> list[float]:
    """Return when the loss of a block's lock was told."""
    return _blocks[key].ending.losses


def end_block(key: str) -> Ending:
    """Let the body end, and tell how the block did."""
    block = _blocks.pop(key)
    block.leave.set()
    block.thread.join(PATIENCE)
    assert not block.thread.is_alive()
    return block.ending


# -- what an onlooker sees and does


def carrier(observer: Observer, key: str, *, prefix: str = "") -> int | None:
    """Return the number of the server's session that holds the server-side lock of a key."""
    names = LockNames("sha256", prefix)
    if observer.server == "postgresql":
        found = observer.rows(SESSION_IN_POSTGRESQL, number=names.advisory_id(key))
        return int(found[0][0]) if found else None
    name = names.lock_name(key, database=observer.url.database or "")
    found = observer.rows("SELECT IS_USED_LOCK(:name)", name=name)
    return None if found[0][0] is None else int(found[0][0])


def kill(observer: Observer, session: int) -> float:
    """End a session of the server; return when."""
    moment = time.monotonic()
    if observer.server == "postgresql":
        observer.rows("SELECT pg_terminate_backend(:session)", session=session)
    else:
        observer.rows(f"KILL {int(session)}")
    return moment
