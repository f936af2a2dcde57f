"""Providers on real databases against a model of the table; expiry comes by setting the stored one back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import Connection, Engine, create_engine, make_url, text

from sqllocks import LockHandle, LockNotAcquired, SqlLockProvider, StaleFencingToken
from tests.servers import fresh_database, require_server

KEYS = st.sampled_from(["a", "b"])
BATCHES = st.sampled_from([["a"], ["b"], ["b", "a", "b"]])
OWNERS = st.sampled_from([None, "one", "two"])
TTL = 600.0
PAST = {
    "sqlite": "expires_at - 3600000000",
    "postgresql": "expires_at - interval '1 hour'",
    "mysql": "expires_at - INTERVAL 1 HOUR",
    "mariadb": "expires_at - INTERVAL 1 HOUR",
}
DRIVERS = {"sqlite": "pysqlite", "postgresql": "psycopg", "mysql": "pymysql", "mariadb": "pymysql"}


@dataclass
class Lease:
    """What the model knows of a key: the last grant, and whether it lasts."""

    owner: str
    token: int
    held: bool = True


class StoredModel(RuleBasedStateMachine):
    """Calls in any order; what they answer follows from the model alone."""

    handles = Bundle("handles")
    server: ClassVar[str]
    engine: ClassVar[Engine]
    provider: ClassVar[SqlLockProvider]

    @initialize()
    def start(self) -> None:
        self.leases: dict[str, Lease] = {}
        self.guarded: dict[str, Connection] = {}
        """Open transactions that have the row of a key locked."""
        with self.engine.begin() as connection:
            connection.execute(text("DELETE FROM core_locks"))

    def teardown(self) -> None:
        for connection in self.guarded.values():
            connection.close()

    def holder(self, key: str) -> Lease | None:
        lease = self.leases.get(key)
        return lease if lease is not None and lease.held else None

    def free(self, key: str) -> bool:
        """Tell whether a claim is granted: a row that stays locked counts as held."""
        return self.holder(key) is None and key not in self.guarded

    def granted(self, handle: LockHandle) -> None:
        last = self.leases.get(handle.lock_key)
        assert last is None or handle.fencing_token > last.token
        self.leases[handle.lock_key] = Lease(handle.owner_token, handle.fencing_token)

    def refused(self, handle: LockHandle) -> None:
        info = self.provider.inspect(handle.lock_key)
        assert info is not None
        told = (handle.acquired, handle.fencing_token, handle.expires_at)
        assert told == (False, info.fencing_token, info.expires_at)

    def mine(self, key: str, owner: str) -> Lease | None:
        holder = self.holder(key)
        return holder if holder is not None and holder.owner == owner else None

    @property
    def writable(self) -> bool:
        """On SQLite a guard keeps everybody from writing; that is waited for, and not tried here."""
        return not (self.guarded and self.server == "sqlite")

    # -- leases

    @rule(target=handles, key=KEYS, owner=OWNERS)
    def acquire(self, key: str, owner: str | None) -> Any:
        if not self.writable:
            return multiple()
        free = self.free(key)
        handle = self.provider.acquire(key, ttl=TTL, owner_token=owner)
        assert handle.acquired is free
        (self.granted if free else self.refused)(handle)
        return handle

    @rule(target=handles, key=KEYS)
    def require_acquire(self, key: str) -> Any:
        if not self.writable:
            return multiple()
        if not self.free(key):
            with pytest.raises(LockNotAcquired):
                self.provider.require_acquire(key, ttl=TTL)
            return multiple()
        handle = self.provider.require_acquire(key, ttl=TTL)
        self.granted(handle)
        return handle

    @rule(target=handles, keys=BATCHES, owner=OWNERS)
    def acquire_many(self, keys: list[str], owner: str | None) -> Any:
        if not self.writable:
            return multiple()
        free = all(self.free(key) for key in keys)
        handles = self.provider.acquire_many(keys, ttl=TTL, owner_token=owner)
        assert [handle.lock_key for handle in handles] == sorted(set(keys))
        assert {handle.acquired for handle in handles} == {free}
        for handle in handles if free else ():
            self.granted(handle)
        if not free:  # what was won was given back, under a token of its own
            for key in set(keys):
                info = self.provider.inspect(key)
                if info is not None and self.holder(key) is None:
                    self.leases[key] = Lease("undone", info.fencing_token or 0, held=False)
        return multiple(*handles)

    @rule(handle=handles)
    def extend(self, handle: LockHandle) -> None:
        lease = self.mine(handle.lock_key, handle.owner_token)
        if handle.lock_key in self.guarded or not self.writable:
            return  # waits for the transaction, except on PostgreSQL
        extended = self.provider.extend(handle.lock_key, owner_token=handle.owner_token, ttl=TTL)
        assert (extended is not None) is (lease is not None)
        if extended is not None and lease is not None:
            assert (extended.acquired, extended.fencing_token) == (True, lease.token)

    @rule(handle=handles, keys=BATCHES)
    def extend_many(self, handle: LockHandle, keys: list[str]) -> None:
        if self.guarded:
            return
        extended = self.provider.extend_many(keys, owner_token=handle.owner_token, ttl=TTL)
        expected = [self.mine(key, handle.owner_token) is not None for key in sorted(set(keys))]
        assert [found is not None for found in extended] == expected

    @rule(handle=handles)
    def release(self, handle: LockHandle) -> None:
        if handle.lock_key in self.guarded or not self.writable:
            return
        lease = self.mine(handle.lock_key, handle.owner_token)
        released = self.provider.release(handle.lock_key, owner_token=handle.owner_token)
        assert released is (lease is not None)
        if lease is not None:
            lease.held = False

    @rule(handle=handles, keys=BATCHES)
    def release_many(self, handle: LockHandle, keys: list[str]) -> None:
        if self.guarded:
            return
        leases = [self.mine(key, handle.owner_token) for key in sorted(set(keys))]
        released = self.provider.release_many(keys, owner_token=handle.owner_token)
        assert released == [lease is not None for lease in leases]
        for lease in leases:
            if lease is not None:
                lease.held = False

    @rule(key=KEYS)
    def break_lock(self, key: str) -> None:
        if self.guarded:
            return
        holder = self.holder(key)
        assert self.provider.break_lock(key) is (holder is not None)
        if holder is not None:
            holder.held = False

    # -- what happens to rows

    @rule(key=KEYS)
    def expire(self, key: str) -> None:
        if not self.guarded and (holder := self.holder(key)) is not None:
            self._set(key, f"expires_at = {PAST[self.server]}")
            holder.held = False

    @rule()
    def purge(self) -> None:
        if self.guarded:
            return
        old = [key for key, lease in self.leases.items() if not lease.held]
        for key in old:
            self._set(key, f"expires_at = {PAST[self.server]}, fencing_token = fencing_token - 7200000000")
        assert self.provider.purge(idle=60) == len(old)
        for key in old:
            del self.leases[key]

    def _set(self, key: str, change: str) -> None:
        with self.engine.begin() as connection:
            connection.execute(text(f"UPDATE core_locks SET {change} WHERE lock_key = :key"), {"key": key})

    # -- guards

    @rule(handle=handles)
    def guard(self, handle: LockHandle) -> None:
        if not handle.acquired or self.guarded:
            return
        connection = self.engine.connect()
        lease = self.mine(handle.lock_key, handle.owner_token)
        if lease is not None and lease.token == handle.fencing_token:
            self.provider.guard(connection, handle)
            self.guarded[handle.lock_key] = connection
            return
        with pytest.raises(StaleFencingToken):
            self.provider.guard(connection, handle)
        connection.close()

    @rule(key=KEYS)
    def lock_the_row(self, key: str) -> None:
        """Lock a row as somebody else's transaction would."""
        if self.server == "sqlite" or self.guarded or key not in self.leases:
            return
        self.guarded[key] = connection = self.engine.connect()
        connection.execute(text("SELECT 1 FROM core_locks WHERE lock_key = :key FOR UPDATE"), {"key": key})

    @rule(commits=st.booleans())
    def end_guard(self, commits: bool) -> None:
        for key in list(self.guarded):
            connection = self.guarded.pop(key)
            connection.commit() if commits else connection.rollback()
            connection.close()

    @invariant()
    def looks_alike(self) -> None:
        infos = {info.lock_key: info for info in self.provider.list_locks()}
        assert sorted(infos) == sorted(self.leases)
        for key, lease in self.leases.items():
            told = (infos[key].held, infos[key].fencing_token)
            assert told == (lease.held, lease.token)
            assert self.provider.inspect(key) == infos[key]
            assert self.provider.locked(key) is lease.held


@contextmanager
def machine(server: str) -> Iterator[type[StoredModel]]:
    """Return the machine on a database of its own."""
    require_server(server)
    with fresh_database(server) as address:
        url = make_url(address).set(drivername=f"{server}+{DRIVERS[server]}")
        engine = create_engine(url)
        provider = SqlLockProvider(engine)
        provider.create_table()
        try:
            members = {"server": server, "engine": engine, "provider": provider}
            yield type(f"{server.title()}Model", (StoredModel,), members)
        finally:
            provider.close(timeout=0)
            engine.dispose()


@pytest.mark.parametrize("server", DRIVERS)
def test_a_database_does_what_the_model_does(server: str) -> None:
    bounded = settings(
        max_examples=15,
        stateful_step_count=15,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    with machine(server) as model:
        run_state_machine_as_test(model, settings=bounded)
