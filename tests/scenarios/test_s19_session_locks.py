"""S19, S28 on session locks: a caller's transaction does not matter, and a name means the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError

from sqllocks import LockValidationError
from tests.conformance.kinds import Kind
from tests.scenarios import locking
from tests.scenarios.arena import NETWORK_KINDS, Arena, some_kinds
from tests.scenarios.locking import Held, Locker
from tests.scenarios.targets import Target
from tests.scenarios.test_s19_callers_transaction import CHANGE, NOTES, READ, WRITE, Caller
from tests.scenarios.test_s28_names import IDENTITY, NAMES, OUTSIDE
from tests.scenarios.workers import Worker

OPTIONS: dict[str, Any] = {"lease": 3, "heartbeat": 0.75}
SOME = some_kinds(
    "postgresql-psycopg-blocking",
    "postgresql-asyncpg-asyncio",
    "mysql-pymysql-blocking",
    "mariadb-aiomysql-asyncio",
)
each_kind = pytest.mark.parametrize("kind", SOME, ids=[kind.name for kind in SOME])
ISOLATION = {
    "writes": "READ COMMITTED",
    "snapshot": "REPEATABLE READ",
    "error": "READ COMMITTED",
    "savepoint": "READ COMMITTED",
}


class Scene:
    """A caller in the middle of a transaction, whose engine is the locker's, and a stranger."""

    def __init__(
        self, arena: Arena, caller: Caller, locker: Locker, stranger: Worker, target: Target
    ) -> None:
        self.arena = arena
        self.caller = caller
        self._locker = locker
        self._stranger = stranger
        self._target = target
        self.name = arena.key("note")

    def free(self, key: str) -> bool:
        """Tell whether another process gets the key at once."""
        return self._stranger.run(locking.try_lock, self._target, key)

    def go_through_a_lock(self) -> Held:
        """Lock and unlock, which is seen at once; return a lock that is still held."""
        key = self.arena.key("from-within")
        held = self._locker.lock(key)
        assert not self.free(key)
        assert held.proven()
        assert held.unlock()
        assert self.free(key)
        return self._locker.lock(self.arena.key("kept"))

    def end(self, kept: Held) -> None:
        """Roll back, which undoes nothing of the lock."""
        self.caller.rollback()
        assert not self.free(kept.lock.key)
        assert kept.proven()
        assert kept.unlock()
        assert self.free(kept.lock.key)


def writes(scene: Scene) -> None:
    scene.caller.execute(WRITE, name=scene.name, content="mine")
    kept = scene.go_through_a_lock()
    assert scene.arena.observer.rows(READ, name=scene.name) == [], "the caller's write was committed"
    assert scene.caller.read(scene.name) == "mine"
    scene.end(kept)
    assert scene.arena.observer.rows(READ, name=scene.name) == []


def snapshot(scene: Scene) -> None:
    scene.arena.observer.rows(WRITE, name=scene.name, content="old")
    assert scene.caller.read(scene.name) == "old"
    scene.arena.observer.rows(CHANGE, name=scene.name, content="new")
    kept = scene.go_through_a_lock()
    assert scene.caller.read(scene.name) == "old", "the caller's snapshot was lost"
    scene.end(kept)
    assert scene.caller.read(scene.name) == "new"


def error(scene: Scene) -> None:
    scene.caller.execute(WRITE, name=scene.name, content="mine")
    with pytest.raises(DBAPIError):
        scene.caller.execute("SELECT 1 FROM no_such_table")
    kept = scene.go_through_a_lock()
    if scene.arena.server == "postgresql":
        with pytest.raises(DBAPIError, match="current transaction is aborted"):
            scene.caller.execute("SELECT 1")
    else:  # there an error undoes its own statement only
        assert scene.caller.read(scene.name) == "mine"
    scene.end(kept)
    assert scene.caller.read(scene.name) is None


def savepoint(scene: Scene) -> None:
    inner = scene.arena.key("inner")
    scene.caller.execute(WRITE, name=scene.name, content="outer")
    go_back = scene.caller.savepoint()
    scene.caller.execute(WRITE, name=inner, content="inner")
    kept = scene.go_through_a_lock()
    go_back()
    assert not scene.free(kept.lock.key)
    assert (scene.caller.read(scene.name), scene.caller.read(inner)) == ("outer", None)
    scene.end(kept)
    assert scene.caller.read(scene.name) is None


@each_kind
def test_s19_session_locks_from_within_a_transaction(arena: Arena, kind: Kind) -> None:
    arena.observer.rows(NOTES)
    plain = arena.target()
    (stranger,) = arena.processes(1)
    stranger.run(locking.open_locker, plain, **OPTIONS)
    situations: tuple[Callable[[Scene], None], ...] = (writes, snapshot, error, savepoint)
    for situation in situations:
        target = arena.target(kind, isolation=ISOLATION[situation.__name__])
        caller = Caller(arena, target)
        with Locker(target, caller.factory, **OPTIONS) as locker, caller.transaction():
            situation(Scene(arena, caller, locker, stranger, plain))


@pytest.mark.parametrize("server", ["postgresql", "mysql", "mariadb"])
def test_s28_a_session_lock_excludes_its_own_name_and_nothing_else(arena: Arena, server: str) -> None:
    target, names = arena.target(), list(NAMES.values())
    (other,) = arena.processes(1)
    other.run(locking.open_locker, target, **OPTIONS)
    matrix, sent = [], set()
    with Locker(target, **OPTIONS) as locker:
        for name in names:
            held = locker.lock(name)
            assert held.lock.key == name
            matrix.append([not each for each in other.run(locking.try_each, target, names)])
            row = arena.observer.stored(name)
            assert row is not None
            kind, _, rest = row.server_lock.partition(":")
            sent.add(rest.rpartition("@")[0])
            assert kind == ("advisory" if server == "postgresql" else "name")
            assert held.unlock()
        assert matrix == IDENTITY
        assert len(sent) == len(names)
        listed = [info.lock_key for info in locker.locker.list_locks()]
        assert [name for name in listed if not name.startswith("warm up")] == sorted(names, key=str.encode)
    for name in sent:
        if server == "postgresql":
            assert -(2**63) <= int(name) < 2**63
        else:
            assert name.isascii()
            assert name == name.lower()
            assert 0 < len(name) <= 64


@pytest.mark.parametrize("kind", NETWORK_KINDS, ids=[kind.name for kind in NETWORK_KINDS])
def test_s28_a_name_outside_the_limits_is_refused_before_any_session(kind: Kind) -> None:
    # nobody answers there, so that a statement would end in another error
    target = Target(f"{kind.server}+{kind.driver}://nobody:secret@127.0.0.1:1/nothing", kind.asyncio)
    with Locker(target) as locker:
        for name in OUTSIDE.values():
            for call in (locker.lock, locker.try_lock):
                with pytest.raises(LockValidationError):
                    call(name)
