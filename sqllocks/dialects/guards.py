"""What a guard reads and locks inside the application's own transaction, on each database."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Select,
    String,
    Table,
    and_,
    bindparam,
    literal_column,
    select,
    text,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.elements import BindParameter

from sqllocks.dialects.base import NOTHING, REFUSALS, LeaseDialect, Parameters, Row, Statement

__all__ = [
    "CLUSTER_QUESTION",
    "KEY",
    "Claimed",
    "GuardDialect",
    "GuardedRow",
    "View",
    "is_clustered",
    "key_parameter",
    "note_cluster",
]

KEY = "guarded_key"
"""The parameter of a guard; SQLAlchemy keeps a column's own name for values that are set."""


@dataclass(frozen=True, slots=True)
class GuardedRow:
    """The row of a key, which the application's transaction has locked by reading it."""

    owner: str
    attempt: str
    token: int
    live: bool
    """The expiry lies in the future by the server's clock."""
    snapshot: int | None
    """The token that this transaction's plain reads see; ``None`` where they see no row."""


@dataclass(frozen=True, slots=True)
class View:
    """What a guard saw. ``frozen``: the row is as the transaction's snapshot has it, not as it is now."""

    row: GuardedRow | None
    frozen: bool = False
    lagging: bool = False
    """This node of a cluster may not have applied the newest grant yet."""


class Claimed:
    """A grant as an expression claims it: parameters of its own, so that one statement may have several."""

    def __init__(self, key: str, owner: str, token: int) -> None:
        self.key = bindparam("lock_key", key, type_=String, unique=True)
        self.owner = bindparam("owner_token", owner, type_=String, unique=True)
        self.token = bindparam("fencing_token", token, type_=BigInteger, unique=True)

    def row_of(self, table: Table, live: ColumnElement[bool]) -> Select[*tuple[Any, ...]]:
        """Return the select that finds a row exactly while the grant is the newest and unexpired."""
        columns = table.c
        one: ColumnElement[int] = literal_column("1")
        return select(one).where(
            and_(
                columns.lock_key == self.key,
                columns.owner_token == self.owner,
                columns.fencing_token == self.token,
                columns.attempt != NOTHING,
                live,
            )
        )


class GuardDialect(ABC):
    """The guard of one kind of database: it finds the row by key alone, and the program compares.

    A filter by owner would make a row that changed since the snapshot look like a missing one.
    """

    stops_own: ClassVar[bool]
    """The lock of a guard also stops the renewals and releases of the lease's own holder."""

    guard: Statement
    bounded: Statement
    """The same, and the transaction may idle for at most ``milliseconds``, where the server can do that."""
    mark: Statement | None = None
    """Sent after a proof that holds, where a read alone protects nothing."""

    def __init__(self, leases: LeaseDialect) -> None:
        self._fault_kind = leases.fault_kind

    def parameters(self, key: str, milliseconds: int | None) -> Parameters:
        """Return the parameters of ``guard``, or of ``bounded`` where ``milliseconds`` are given."""
        return {KEY: key}

    @abstractmethod
    def view(self, rows: Sequence[Row]) -> View:
        """Return what the answer of ``guard`` or ``bounded`` says."""

    @abstractmethod
    def fence(self, claim: Claimed) -> Select[*tuple[Any, ...]]:
        """Return the sub-select of ``fenced``: the same proof inside the statement that writes."""

    @abstractmethod
    def autocommits(self, connection: Any, rows: Sequence[Row]) -> bool:
        """Tell whether the guard's lock was gone as soon as its statement had ended.

        ``connection`` is SQLAlchemy's ``PoolProxiedConnection``, whose driver's own one tells.
        """

    def retryable(self, error: BaseException) -> bool | None:
        """Tell whether the transaction may succeed when run again; ``None``: it met no conflict."""
        return True if self._fault_kind(error) in REFUSALS else None


def key_parameter() -> BindParameter[str]:
    """Return the parameter that holds the row's key."""
    return bindparam(KEY, type_=String)


# -- clusters that compare transactions by the rows they changed: a lock by reading protects nothing there

CLUSTER_QUESTION = Statement(
    "cluster",
    text(
        "SHOW GLOBAL VARIABLES WHERE Variable_name IN "
        "('wsrep_on', 'wsrep_provider', 'group_replication_group_name')"
    ),
)
_clustered: WeakKeyDictionary[Dialect, bool] = WeakKeyDictionary()


def is_clustered(dialect: Dialect) -> bool | None:
    """Tell whether an engine's server belongs to Galera or a replication group; ``None``: not asked yet."""
    if dialect.name not in {"mysql", "mariadb"}:
        return False
    return _clustered.get(dialect)


def note_cluster(dialect: Dialect, rows: Sequence[Row]) -> bool:
    """Remember the answer to ``CLUSTER_QUESTION`` for this engine, and return what it says."""
    found = {str(name).lower(): str(value) for name, value in rows}
    galera = found.get("wsrep_on", "").upper() in {"ON", "1"} and found.get("wsrep_provider") not in {
        None,
        "",
        "none",
    }
    clustered = _clustered[dialect] = galera or bool(found.get("group_replication_group_name"))
    return clustered
