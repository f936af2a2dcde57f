"""The memory provider against a model that is too simple to be wrong."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from sqllocks import LockHandle, MemoryLockProvider

KEYS = st.sampled_from(["a", "b"])
TTLS = st.sampled_from([0.1, 1.0, 2.5, 60.0])
START = datetime(2030, 1, 1, tzinfo=UTC)


@dataclass
class Lease:
    """What the model knows of a key: the last grant, and when it ends."""

    owner: str
    token: int
    ends: datetime


class MemoryModel(RuleBasedStateMachine):
    """Calls in any order, with time that goes on, or stands still, between them."""

    handles = Bundle("handles")

    @initialize()
    def start(self) -> None:
        self.now = START
        self.leases: dict[str, Lease] = {}
        self.provider = MemoryLockProvider(clock=lambda: self.now)

    def teardown(self) -> None:
        self.provider.close()

    def holder(self, key: str) -> Lease | None:
        lease = self.leases.get(key)
        return lease if lease is not None and lease.ends > self.now else None

    @rule(span=st.sampled_from([0.000001, 0.1, 0.9, 1.0, 2.5, 60.0, 3600.0]))
    def time_goes_on(self, span: float) -> None:
        self.now += timedelta(seconds=span)

    @rule(key=KEYS)
    def time_comes_to_an_expiry(self, key: str) -> None:
        if (lease := self.holder(key)) is not None:
            self.now = lease.ends

    @rule(target=handles, key=KEYS, ttl=TTLS, owner=st.sampled_from([None, "one", "two"]))
    def acquire(self, key: str, ttl: float, owner: str | None) -> object:
        holder, last = self.holder(key), self.leases.get(key)
        handle = self.provider.acquire(key, ttl=ttl, owner_token=owner)
        assert owner is None or handle.owner_token == owner
        assert (handle.acquired, handle.lock_key) == (holder is None, key)
        if holder is None:
            assert handle.expires_at == self.now + timedelta(seconds=ttl)
            assert last is None or handle.fencing_token > last.token
            self.leases[key] = Lease(handle.owner_token, handle.fencing_token, handle.expires_at)
            return handle
        assert (handle.fencing_token, handle.expires_at) == (holder.token, holder.ends)
        return handle if owner else multiple()

    @rule(handle=handles, ttl=TTLS)
    def extend(self, handle: LockHandle, ttl: float) -> None:
        holder = self.holder(handle.lock_key)
        extended = self.provider.extend(handle.lock_key, owner_token=handle.owner_token, ttl=ttl)
        if holder is None or holder.owner != handle.owner_token:
            assert extended is None
            return
        holder.ends = self.now + timedelta(seconds=ttl)
        expected = LockHandle(True, handle.lock_key, holder.owner, holder.ends, holder.token)
        assert extended == expected

    @rule(handle=handles)
    def release(self, handle: LockHandle) -> None:
        holder = self.holder(handle.lock_key)
        mine = holder is not None and holder.owner == handle.owner_token
        assert self.provider.release(handle.lock_key, owner_token=handle.owner_token) is mine
        if holder is not None and mine:
            holder.ends = self.now

    @rule(key=KEYS)
    def break_lock(self, key: str) -> None:
        holder = self.holder(key)
        assert self.provider.break_lock(key) is (holder is not None)
        if holder is not None:
            holder.ends = self.now

    @invariant()
    def looks_alike(self) -> None:
        infos = {info.lock_key: info for info in self.provider.list_locks()}
        assert sorted(infos) == sorted(self.leases)
        for key, lease in self.leases.items():
            held = self.holder(key) is not None
            assert self.provider.locked(key) is held
            assert self.provider.inspect(key) == infos[key]
            told = (infos[key].held, infos[key].fencing_token, infos[key].expires_at)
            assert told == (held, lease.token, lease.ends)


MemoryModel.TestCase.settings = settings(
    max_examples=80, stateful_step_count=25, deadline=None, database=None
)
TestMemoryModel = MemoryModel.TestCase
