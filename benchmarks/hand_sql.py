"""Hand-written lock statements: what somebody who knows the database would write without a library."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

Said = tuple[str, Sequence[Any]]
"""A statement and its parameters."""

_TTL = 30
_INSERT = "INSERT INTO by_hand (lock_key, owner, token, expires_at) VALUES "


class Hand(ABC):
    """One database's statements; ``style`` is the driver's mark for a parameter."""

    create: str

    def __init__(self, style: str) -> None:
        self.style = style

    def marks(self, count: int, shape: str = "{}") -> str:
        """Return ``count`` marks, or shapes with marks in them, between commas."""
        return ", ".join([shape.replace("{}", self.style)] * count)

    @abstractmethod
    def take(self, key: str, owner: str) -> Said: ...

    @abstractmethod
    def give(self, key: str, owner: str) -> Said: ...

    @abstractmethod
    def take_all(self, keys: Sequence[str], owners: Sequence[str]) -> list[Said]:
        """Return the statements of a batch; the rows of the last one tell who won."""

    @abstractmethod
    def give_all(self, keys: Sequence[str], owners: Sequence[str]) -> Said: ...

    def won(self, rows: Sequence[Any], count: int) -> bool:
        """Tell whether one key was taken."""
        return bool(rows)

    def winners(self, rows: Sequence[Any], keys: Sequence[str], owners: Sequence[str]) -> list[str | None]:
        """Return each key's owner where it was taken."""
        taken = {row[0] for row in rows}
        return [owner if key in taken else None for key, owner in zip(keys, owners, strict=True)]


class PostgreSQL(Hand):
    """A conditional upsert with RETURNING and an UPDATE; batches come by ``unnest``."""

    # the storage settings of the library's own table, so that only the statements differ
    create = (
        'CREATE TABLE IF NOT EXISTS by_hand (lock_key VARCHAR(255) COLLATE "C" PRIMARY KEY, '
        "owner VARCHAR(64) NOT NULL, token BIGINT NOT NULL, expires_at TIMESTAMPTZ NOT NULL) "
        "WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000, "
        "autovacuum_analyze_scale_factor = 0.0, autovacuum_analyze_threshold = 5000)"
    )

    def __init__(self, style: str) -> None:
        super().__init__(style)
        one, two = ("$1", "$2") if style == "$" else (style, style)
        until = f"clock_timestamp() + interval '{_TTL} s'"
        into = "INSERT INTO by_hand AS l (lock_key, owner, token, expires_at) "
        conflict = (
            " ON CONFLICT (lock_key) DO UPDATE SET owner = excluded.owner, token = l.token + 1, "
            f"expires_at = {until} WHERE l.expires_at <= clock_timestamp() "
            "RETURNING lock_key, token, expires_at"
        )
        want = f"unnest({one}::text[], {two}::text[]) AS want(k, o)"
        self._take = f"{into}VALUES ({one}, {two}, 1, {until}){conflict}"
        self._give = (
            "UPDATE by_hand SET expires_at = clock_timestamp() "
            f"WHERE lock_key = {one} AND owner = {two} AND expires_at > clock_timestamp()"
        )
        self._take_all = f"{into}SELECT k, o, 1, {until} FROM {want} ORDER BY k{conflict}"
        self._give_all = (
            f"UPDATE by_hand AS l SET expires_at = clock_timestamp() FROM {want} "
            "WHERE l.lock_key = want.k AND l.owner = want.o AND l.expires_at > clock_timestamp()"
        )

    def take(self, key: str, owner: str) -> Said:
        return self._take, (key, owner)

    def give(self, key: str, owner: str) -> Said:
        return self._give, (key, owner)

    def take_all(self, keys: Sequence[str], owners: Sequence[str]) -> list[Said]:
        return [(self._take_all, (list(keys), list(owners)))]

    def give_all(self, keys: Sequence[str], owners: Sequence[str]) -> Said:
        return self._give_all, (list(keys), list(owners))


class SQLite(Hand):
    """The same; a batch has several rows of VALUES."""

    create = (
        "CREATE TABLE IF NOT EXISTS by_hand (lock_key TEXT PRIMARY KEY, owner TEXT NOT NULL, "
        "token INTEGER NOT NULL, expires_at REAL NOT NULL)"
    )
    _until = f"julianday('now') + {_TTL}e0 / 86400"
    _conflict = (
        f" ON CONFLICT (lock_key) DO UPDATE SET owner = excluded.owner, token = token + 1, "
        f"expires_at = {_until} WHERE expires_at <= julianday('now') RETURNING lock_key, token, expires_at"
    )

    def take(self, key: str, owner: str) -> Said:
        return self.take_all([key], [owner])[0]

    def give(self, key: str, owner: str) -> Said:
        return (
            "UPDATE by_hand SET expires_at = julianday('now') "
            "WHERE lock_key = ? AND owner = ? AND expires_at > julianday('now')",
            (key, owner),
        )

    def take_all(self, keys: Sequence[str], owners: Sequence[str]) -> list[Said]:
        rows = self.marks(len(keys), f"({{}}, {{}}, 1, {self._until})")
        return [(_INSERT + rows + self._conflict, _pairs(keys, owners))]

    def give_all(self, keys: Sequence[str], owners: Sequence[str]) -> Said:
        return (
            "UPDATE by_hand SET expires_at = julianday('now') WHERE (lock_key, owner) IN "
            f"(VALUES {self.marks(len(keys), '({}, {})')}) AND expires_at > julianday('now')",
            _pairs(keys, owners),
        )


class MySQL(Hand):
    """An upsert that changes a free row only: the row count tells who won, LAST_INSERT_ID the token.

    For a batch the row count says nothing of each, so it is read back.
    """

    _collation = "utf8mb4_0900_bin"

    def __init__(self, style: str) -> None:
        super().__init__(style)
        text = f"CHARACTER SET utf8mb4 COLLATE {self._collation}"
        self.create = (
            f"CREATE TABLE IF NOT EXISTS by_hand (lock_key VARCHAR(255) {text} PRIMARY KEY, "
            f"owner VARCHAR(64) {text} NOT NULL, token BIGINT NOT NULL, expires_at DATETIME(6) NOT NULL) "
            "ENGINE=InnoDB"
        )
        self._row = f"({{}}, {{}}, 1, SYSDATE(6) + INTERVAL {_TTL} SECOND)"

    @staticmethod
    def _conflict(token: str) -> str:
        free = "expires_at <= SYSDATE(6)"
        return (
            f" ON DUPLICATE KEY UPDATE token = IF({free}, {token}, token), "
            f"owner = IF({free}, VALUES(owner), owner), "
            f"expires_at = IF({free}, VALUES(expires_at), expires_at)"
        )

    def take(self, key: str, owner: str) -> Said:
        return _INSERT + self.marks(1, self._row) + self._conflict("LAST_INSERT_ID(token + 1)"), (key, owner)

    def won(self, rows: Sequence[Any], count: int) -> bool:
        return count > 0

    def give(self, key: str, owner: str) -> Said:
        return self.give_all([key], [owner])

    def take_all(self, keys: Sequence[str], owners: Sequence[str]) -> list[Said]:
        upsert = _INSERT + self.marks(len(keys), self._row) + self._conflict("token + 1")
        read = f"SELECT lock_key, owner, token FROM by_hand WHERE lock_key IN ({self.marks(len(keys))})"
        return [(upsert, _pairs(keys, owners)), (read, list(keys))]

    def winners(self, rows: Sequence[Any], keys: Sequence[str], owners: Sequence[str]) -> list[str | None]:
        found = {row[0]: row[1] for row in rows}
        return [owner if found.get(key) == owner else None for key, owner in zip(keys, owners, strict=True)]

    def give_all(self, keys: Sequence[str], owners: Sequence[str]) -> Said:
        which = f"lock_key IN ({self.marks(len(keys))}) AND owner IN ({self.marks(len(keys))})"
        return (
            f"UPDATE by_hand SET expires_at = SYSDATE(6) WHERE {which} AND expires_at > SYSDATE(6)",
            [*keys, *owners],
        )


class MariaDB(MySQL):
    """The same, with the collation that this server has."""

    _collation = "utf8mb4_nopad_bin"


def hand_for(server: str, style: str) -> Hand:
    """Return the statements for a server."""
    kinds: dict[str, Callable[[str], Hand]] = {
        "postgresql": PostgreSQL,
        "mysql": MySQL,
        "mariadb": MariaDB,
        "sqlite": SQLite,
    }
    return kinds[server](style)


def _pairs(keys: Sequence[str], owners: Sequence[str]) -> list[str]:
    return [value for pair in zip(keys, owners, strict=True) for value in pair]
