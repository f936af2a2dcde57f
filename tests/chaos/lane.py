"""What a worker does in one thread or task: take keys, use them, give them back, and tell all of it."""

from __future__ import annotations

import random
import traceback
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from sqllocks import BackendUnavailable, LeaseLost, LockError, LockNotAcquired, TransactionConflict
from tests.chaos.forms import Application, entered, settled
from tests.chaos.history import Recorder, now
from tests.chaos.plan import Plan

MARGIN = 0.1
"""The part of the ttl that the holder of a bare handle does not use; the library's own is no smaller."""


class Trouble(Exception):
    """The application's transaction failed by itself, or the library raised what it must not."""


class Held:
    """A lease as its holder sees it: a ``Lease``, or a bare handle with a deadline of one's own."""

    def __init__(self, name: str, handle: Any, asked: float, ttl: float) -> None:
        self.name = name
        self.handle = handle
        self.key: str = handle.lock_key
        self.token: int = handle.fencing_token
        self.kept = hasattr(handle, "check")
        self.deadline = asked + ttl * (1 - MARGIN)

    def check(self) -> None:
        """Raise ``LeaseLost`` where the lease is not to be trusted any more."""
        if self.kept:
            self.handle.check()
        elif now() >= self.deadline:
            raise LeaseLost("its own deadline is over")


class Lane:
    """One thread or task of a worker."""

    def __init__(
        self, plan: Plan, application: Application, recorder: Recorder, name: str, until: float
    ) -> None:
        self._plan = plan
        self._application = application
        self._locks = application.locks
        self._tell = recorder.tell
        self._name = name
        self._until = until
        self._random = random.Random(f"{plan.seed}:{name}")
        self._leases = 0

    async def run(self) -> None:
        """Do one thing after another until the time is over."""
        doings: tuple[Callable[[], Awaitable[None]], ...] = (self._by_hand, self._block, self._many)
        try:
            while now() < self._until:
                doing = self._random.choices(doings, (4, 4, 1))[0]
                await doing()
                await self._application.sleep(self._random.uniform(0, 0.03))
        except Exception:
            self._tell("error", note=f"a lane ended: {traceback.format_exc()}")

    # -- taking

    async def _by_hand(self) -> None:
        key, ttl = self._random.choice(self._plan.keys), self._ttl()
        asked, wait = now(), self._wait() if self._random.random() < 0.5 else 0
        if wait:
            take = partial(self._locks.require_acquire, key, ttl=ttl, wait=wait)
        else:
            take = partial(self._locks.acquire, key, ttl=ttl)
        try:
            handle = await self._call(take)
        except (LockError, Trouble) as error:
            self._refused([key], asked, error)
            return
        if not handle:
            self._tell("busy", key=key, since=asked, note="acquire")
            return
        held = self._granted(handle, asked, ttl)
        self._tell("end", lease=held.name, key=key, note=await self._used_by_hand(held, waited=wait > 0))

    async def _used_by_hand(self, held: Held, *, waited: bool) -> str:
        try:
            if waited:  # the handle does not tell when it was asked for after the wait
                await self._extend(held)
            await self._use([held])
        except (LockError, Trouble) as error:
            return f"given up: {type(error).__name__}"
        if self._random.random() < 0.15:
            return "left to expire"
        release = partial(self._locks.release, held.key, owner_token=held.handle.owner_token)
        try:
            return "released" if await self._call(release) else "gone"
        except (BackendUnavailable, Trouble) as error:
            return f"unknown: {error}"

    async def _block(self) -> None:
        key, ttl = self._random.choice(self._plan.keys), self._ttl()
        renew = self._renew()
        block = self._locks.hold(key, ttl=ttl, wait=self._wait(), renew=renew)
        await self._hold([key], ttl, block, renew=renew)

    async def _many(self) -> None:
        keys = self._random.sample(self._plan.keys, min(2, len(self._plan.keys)))
        ttl, renew = self._ttl(), self._renew()
        block = self._locks.hold_many(keys, ttl=ttl, wait=self._wait(), renew=renew)
        await self._hold(keys, ttl, block, renew=renew)

    async def _hold(self, keys: list[str], ttl: float, block: Any, *, renew: bool) -> None:
        asked = now()
        held: list[Held] = []
        note = "released"
        try:
            async with entered(block) as given:
                for lease in given if isinstance(given, list) else [given]:
                    held.append(self._granted(lease, asked, ttl, "renewed" if renew else ""))
                    lease.on_lost(partial(self._tell, "loss", lease=held[-1].name, key=lease.lock_key))
                await self._use(held)
        except (LockError, Trouble) as error:
            note = f"given up: {type(error).__name__}"
            if not held:
                self._refused(keys, asked, error)
        except Exception as error:
            note = repr(error)
            self._tell("error", note=f"hold: {traceback.format_exc()}")
        for each in held:
            self._tell("end", lease=each.name, key=each.key, note=note)

    def _granted(self, handle: Any, asked: float, ttl: float, note: str = "") -> Held:
        at = now()
        self._leases += 1
        held = Held(f"{self._name}/{self._leases}", handle, asked, ttl)
        self._tell(
            "grant",
            at=at,
            key=held.key,
            lease=held.name,
            token=held.token,
            since=asked,
            seconds=ttl,
            note=note,
        )
        return held

    def _refused(self, keys: list[str], asked: float, error: Exception) -> None:
        busy = isinstance(error, LockNotAcquired)
        if isinstance(error, BackendUnavailable) and self._plan.sabotage == "busy-for-unknown":
            busy = True
        if not busy and not isinstance(error, BackendUnavailable | Trouble):
            self._tell("error", note=f"taking {keys}: {error!r}")
        for key in keys:
            self._tell("busy" if busy else "unknown", key=key, since=asked, note=f"{error!r:.200}")

    # -- using

    async def _use(self, held: list[Held]) -> None:
        if self._plan.sabotage == "ignore-expiry":
            await self._trust_too_long(held)
            return
        if self._plan.sabotage == "no-guard":
            await self._write(self._random.choice(held))
            return
        for _ in range(self._random.randint(1, 4)):
            self._check(held)
            await self._application.sleep(self._random.uniform(0.002, 0.04))
            chance = self._random.random()
            if chance < 0.15:
                await self._extend(self._random.choice(held))
            elif chance < 0.6:
                await self._write(self._random.choice(held))

    async def _trust_too_long(self, held: list[Held]) -> None:
        end = now() + self._plan.ttl[1] + 0.5
        while now() < end:
            for each in held:
                self._tell("trust", lease=each.name, key=each.key, token=each.token, since=now())
            await self._application.sleep(0.1)

    def _check(self, held: list[Held]) -> None:
        for each in held:
            since = now()
            each.check()
            self._tell("trust", lease=each.name, key=each.key, token=each.token, since=since)

    async def _extend(self, held: Held) -> None:
        ttl, asked = self._ttl(), now()
        deadline = asked + ttl * (1 - MARGIN)
        # should the answer be lost, the shorter of the two expiries counts
        held.deadline = min(held.deadline, deadline)
        if held.kept:
            await self._call(partial(held.handle.extend, ttl=ttl))
        else:
            owner = held.handle.owner_token
            if await self._call(partial(self._locks.extend, held.key, owner_token=owner, ttl=ttl)) is None:
                raise LeaseLost("extend says so")
        held.deadline = deadline
        self._tell("extended", lease=held.name, key=held.key, token=held.token, since=asked, seconds=ttl)

    async def _write(self, held: Held) -> None:
        unguarded = self._plan.sabotage == "no-guard"
        pause = self._plan.ttl[1] + 0.3 if unguarded else self._random.choice((0, 0, 0.02, 0.2, 1.0))

        async def guard(connection: Any) -> None:
            if unguarded:
                return
            guards = held.handle.guard if held.kept else partial(_of_provider, self._locks, held.handle)
            await self._call(partial(guards, connection))

        try:
            number = await self._application.count(held.key, held.token, held.name, guard=guard, pause=pause)
        except TransactionConflict as conflict:
            self._tell("conflict", lease=held.name, key=held.key, note=str(conflict)[:200])
            return
        except (LockError, Trouble):
            raise
        except Exception as error:  # the application's own statements met a fault
            self._tell("conflict", lease=held.name, key=held.key, note=f"{error!r:.200}")
            raise Trouble from error
        self._tell("written", lease=held.name, key=held.key, token=held.token, number=number)

    async def _call(self, call: Callable[[], Any]) -> Any:
        """Call the library; whatever is not its own error is recorded."""
        try:
            return await settled(call())
        except LockError:
            raise
        except Exception as error:
            self._tell("error", note=f"{call}: {traceback.format_exc()}")
            raise Trouble from error

    # -- choices

    def _ttl(self) -> float:
        return round(self._random.uniform(*self._plan.ttl), 3)

    def _wait(self) -> float:
        return self._random.choice((0, 0.1, 0.5, 2.0))

    def _renew(self) -> bool:
        return self._random.random() < 0.8 and self._plan.sabotage not in {"ignore-expiry", "no-guard"}


def _of_provider(locks: Any, handle: Any, connection: Any) -> Any:
    return locks.guard(connection, handle)
