"""What the tasks of a process do: the calls of a provider, and what they tell of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeAlias

from sqllocks.core.claiming import Grant
from sqllocks.core.guard import Claim, objection
from sqllocks.core.holding import Holding
from sqllocks.core.kept import Kept
from sqllocks.core.leases import Leases
from sqllocks.dialects.base import Want
from sqllocks.errors import LeaseLost, LockError, LockTimeout
from tests.exploration.asks import Ask, Guard, Leave, Ready, Reply, Viewed
from tests.exploration.processes.port import ProcessPort

__all__ = ["TTL", "Fact", "Process", "Task"]

TTL = 4.0


class Fact(NamedTuple):
    """Something that a task learnt, at a moment, of a key or a grant."""

    what: str
    now: int
    key: str = ""
    owner: str = ""
    token: int = 0
    detail: object = None


class Process:
    """One provider in one process."""

    def __init__(self, port: ProcessPort, leases: Leases, holding: Holding, name: str) -> None:
        self.port = port
        self.leases = leases
        self.holding = holding
        self.name = name
        self.facts: list[Fact] = []
        self.told: dict[tuple[str, int], int] = {}
        """How often the loss of each grant was told, by key and token."""
        self.begun: list[Kept] = []

    # -- steps of a task

    async def begin(self) -> None:
        """Start whenever the world pleases."""
        await self._ask(Ready())

    async def work(self, seconds: float) -> None:
        """Spend time in the body."""
        await self.port.sleep(seconds)

    async def hold(
        self, *keys: str, ttl: float = TTL, wait: float | None = 0, renew: bool = True, at_least: float = 0
    ) -> list[Kept]:
        """Enter ``hold`` or ``hold_many``."""
        wants = self.leases.names.wants(keys, ttl, None)
        self._say("asks" if wait == 0 else "waits", *wants)
        many = len(wants) > 1
        try:
            if many:
                grants = await self.leases.grant_many(wants, wait)
            else:
                grants = [await self.leases.grant(wants[0], wait)]
        except BaseException as error:
            self._say("timed out" if isinstance(error, LockTimeout) else "refused", *wants)
            raise
        return [self._kept(grant, renew=renew, at_least=at_least) for grant in grants]

    async def acquire_many(self, *keys: str, ttl: float = TTL) -> bool:
        """Take all keys or none, without a keeper."""
        owner = f"{self.name}-owner{len(self.facts)}"
        wants = [Want(key, owner) for key in keys]
        self._say("asks", *wants)
        try:
            handles = await self.leases.acquire_many(keys, ttl=ttl, owner_token=owner)
        except BaseException:
            self._say("refused", *wants)
            raise
        granted = {handle.acquired for handle in handles}
        if granted == {True}:
            for handle in handles:
                self._tell("granted", handle.lock_key, owner, handle.fencing_token)
        else:
            self._say("refused" if granted == {False} else "mixed", *wants)
        return granted == {True}

    def check(self, *leases: Kept) -> None:
        """Do what a body does before it goes on: raises ``LeaseLost``."""
        for kept in leases:
            self.holding.check(kept)
            self._about("checked", kept)

    async def extend(self, kept: Kept, ttl: float) -> None:
        """Set another ttl."""
        await self.holding.extend(kept, ttl)
        self._about("extended", kept)

    async def release(self, kept: Kept) -> bool:
        """Give back before the end of the block."""
        released = await self.holding.release(kept)
        self._about("released" if released else "not released", kept)
        return released

    @asynccontextmanager
    async def block(self, *leases: Kept) -> AsyncIterator[None]:
        """Do what ``hold`` does around its body."""
        try:
            yield
        except GeneratorExit:
            raise
        except BaseException as error:
            await self.end(*leases, error=error)
            raise
        await self.end(*leases)

    @asynccontextmanager
    async def transaction(self, kept: Kept) -> AsyncIterator[None]:
        """Guard what is done in the body."""
        await self.guard(kept)
        try:
            yield
        except GeneratorExit:
            raise
        except BaseException:
            await self.commit(kept)
            raise
        await self.commit(kept)

    async def end(self, *leases: Kept, error: BaseException | None = None) -> None:
        """Leave the block."""
        left = [kept for kept in leases if not kept.ended]
        try:
            await self.holding.end(leases, error)
        except LeaseLost:
            for kept in left:
                self._about("lost at the end" if kept.lost else "ended in doubt", kept)
            raise
        except LockError:
            for kept in left:
                self._about("ended in doubt", kept)
            raise
        for kept in left:
            self._about("ended" if error is None else "ended with an error", kept)

    def drop(self, kept: Kept) -> None:
        """Forget a lease, as the garbage collector finds it."""
        self.holding.keeper.dropped(kept)

    async def guard(self, kept: Kept) -> None:
        """Prove a lease in a transaction of the application; raises ``StaleFencingToken``."""
        self.holding.check(kept)
        want = kept.want
        seen = await self._ask(Guard(want.key))
        assert isinstance(seen, Viewed), seen
        found = objection(Claim(want.key, want.key, want.owner, kept.token), seen.view)
        if found is not None:
            await self._ask(Leave(want.key))
            raise found
        if self.port.family.stops_own:
            self.leases.pinning.pinned(want.key, want.owner, kept.token)
        self._about("guarded", kept)

    async def commit(self, kept: Kept) -> None:
        """End the transaction of ``guard``; what the pins put off is done before this returns."""
        want = kept.want
        await self._ask(Leave(want.key))
        if self.port.family.stops_own:
            work = self.leases.pinning.unpinned(want.key, want.owner, kept.token)
            await self.port.shielded(work)
        self._about("committed", kept)

    async def purge(self, idle: float) -> int:
        """Remove what was free for long."""
        removed = await self.leases.purge(idle=idle)
        self._tell("purged", detail=removed)
        return removed

    async def close(self, timeout: float) -> None:
        """Shut the provider down."""
        self._tell("closes")
        await self.holding.close(timeout)
        self._tell("closed")

    # -- how it is told

    def _kept(self, grant: Grant, *, renew: bool, at_least: float) -> Kept:
        minimum = round(at_least * 1_000_000)
        token = grant.handle.fencing_token
        self._tell("granted", grant.want.key, grant.want.owner, token, minimum)
        kept = self.holding.begin(grant, renew=renew, at_least=minimum)
        self.begun.append(kept)
        self.holding.on_lost(kept, lambda: self._lost(kept))
        return kept

    def _lost(self, kept: Kept) -> None:
        grant = (kept.want.key, kept.token)
        self.told[grant] = self.told.get(grant, 0) + 1
        self._about("lost", kept)

    def _about(self, what: str, kept: Kept) -> None:
        self._tell(what, kept.want.key, kept.want.owner, kept.token)

    def _say(self, what: str, *wants: Want) -> None:
        for want in wants:
            self._tell(what, want.key, want.owner)

    def _tell(self, what: str, key: str = "", owner: str = "", token: int = 0, detail: object = None) -> None:
        self.facts.append(Fact(what, self.port.time, key, owner, token, detail))

    async def _ask(self, ask: Ask) -> Reply:
        return await self.port.ask(ask)


Task: TypeAlias = Callable[[Process], Coroutine[Any, Any, None]]
