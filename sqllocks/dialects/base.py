"""What every dialect offers: named statements, their parameters, and the meaning of their answers."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, NamedTuple

from sqlalchemy import (
    BigInteger,
    Integer,
    Select,
    String,
    Table,
    and_,
    bindparam,
    case,
    func,
    literal_column,
    select,
)
from sqlalchemy.schema import CreateTable
from sqlalchemy.sql.elements import ClauseElement, ColumnElement

from sqllocks.policy import PURGE_SLICE

__all__ = [
    "NOTHING",
    "REFUSALS",
    "Answer",
    "Fault",
    "FaultKind",
    "LeaseDialect",
    "Parameters",
    "Result",
    "Row",
    "Statement",
    "StoredLock",
    "Verdict",
    "Want",
    "constant",
]

Row = Sequence[Any]
Parameters = Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    """One named SQL statement; ``rows`` tells whether it answers with rows."""

    name: str
    clause: ClauseElement
    rows: bool = True
    single: Statement | None = None
    """The same for a batch of one, where that is cheaper for the server."""
    needs: Sequence[str] = ()
    """The parameters of a batch that it takes, where those are not all."""
    at_once: Statement | None = None
    """For a release: the same for elements without a minimum hold, where that costs less."""
    counted: bool = False
    """For a single element: the count of changed rows is its whole answer."""


@dataclass(frozen=True, slots=True)
class Result:
    """What the database answered: the rows, and how many rows it counted as affected."""

    rows: Sequence[Row]
    count: int
    number: int = 0
    """One number that a statement without rows brought back, where the server can do that (MySQL)."""


class FaultKind(enum.Enum):
    """Why a statement failed, as far as it decides what to do next."""

    CONFLICT = "the victim of a deadlock or a serialization failure"
    LOCKED = "not carried out because another transaction has a lock"
    GONE = "the session ended or never began"
    NO_TABLE = "the table is missing or another one"
    NO_SCHEMA = "the schema of the table is missing"
    READ_ONLY = "the server is read-only"
    FORBIDDEN = "the account lacks a privilege"
    FULL = "the server has no room for another lock"
    UNSUPPORTED = "the server does not know the statement"
    OTHER = "any other failure"


REFUSALS = (FaultKind.CONFLICT, FaultKind.LOCKED)
"""The server answered and did nothing: asking again may succeed, on the same session."""


class Fault(Exception):
    """A statement that failed; the driver's error is the ``__cause__``.

    ``sent`` is false where the statement certainly never reached the server. After ``CONFLICT``
    and ``LOCKED`` nothing was done; after ``GONE`` it is unknown whether the statement was carried out.
    """

    def __init__(self, kind: FaultKind, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.sent = sent


class Want(NamedTuple):
    """One element of a batch. An empty ``attempt`` stands for any attempt of that owner."""

    key: str
    owner: str
    attempt: str = ""
    ttl: int = 0
    """Microseconds: how long a lease lasts; in a release, how long the key stays taken after its grant."""
    holder: str = ""
    name: int | str = ""
    """The lock at the server that goes with the row, where there is one: an advisory id or a lock's name."""
    server_lock: str = ""
    """The same as the row has it, together with the incarnation of the server."""


@dataclass(frozen=True, slots=True)
class StoredLock:
    """One row of the table; ``held`` as the database's clock saw it at ``seen_at``."""

    key: str
    owner: str
    attempt: str
    kind: str
    holder: str
    server_lock: str
    token: int
    acquired_at: datetime
    expires_at: datetime
    held: bool
    seen_at: datetime


class Verdict(enum.Enum):
    """What became of one element of a batch."""

    DONE = "done"
    REFUSED = "refused"
    SKIPPED = "skipped"
    """Its row is locked by somebody's open transaction: that is not an answer, ask again."""
    MISSING = "missing"


class Answer(NamedTuple):
    """The verdict on one key; token and expiry are those of the row where the verdict tells them."""

    verdict: Verdict
    token: int = 0
    expires_at: datetime | None = None


def constant(text: str) -> ColumnElement[str]:
    """Return a piece of SQL text as it stands: a literal of the library's own, never a value."""
    return literal_column(text, String)


NOTHING = constant("''")


class LeaseDialect(ABC):
    """The statements on one lock table, under the same names for every database.

    Each statement takes a whole batch (``batch``), is autocommit and alone, and decides by the
    server's wall clock. ``told`` turns its result into the answers that the result itself gives;
    what it leaves open is read afterwards.
    """

    name: ClassVar[str]
    counts: bool = False
    """The server only counts changed rows, so a partly done batch does not tell which were done."""

    single_skips: bool = True
    """The form for a single element skips a locked row too; else it fails at once, and says ``LOCKED``."""

    claim: Statement
    claim_free: Statement | None = None
    """Claims rows that are there and free, and answers for those alone; ``claim`` is for the others then."""
    commits: Statement | None = None
    """Asks for a number that changes when somebody else commits, where a whole file is locked (SQLite)."""
    insert: Statement | None = None
    """Claims keys that have no row yet, where ``claim`` itself cannot."""
    renew: Statement
    revive: Statement
    """Renews one's own grant although it has expired, where nobody has taken it."""
    release: Statement
    break_: Statement
    won: Statement | None = None
    """Tells of a batch what its very attempts hold, where a claim is only counted."""
    own: Statement | None = None
    """Names the keys of a batch that their owners hold, where a change is only counted."""
    lockers: Statement | None = None
    """Names the sessions that have a key's row locked, where the server tells."""

    def __init__(self, table: Table) -> None:
        self.table = table
        columns = table.c
        self._columns = (
            columns.lock_key,
            columns.owner_token,
            columns.attempt,
            columns.kind,
            columns.holder,
            columns.server_lock,
            columns.fencing_token,
            columns.acquired_at,
            columns.expires_at,
        )
        self.free: ColumnElement[bool] = (columns.attempt == NOTHING) | (columns.expires_at <= self.clock())
        self.held: ColumnElement[bool] = (columns.attempt != NOTHING) & (columns.expires_at > self.clock())
        one = Statement("read", self._reading().where(columns.lock_key == bindparam("key", type_=String)))
        self.read = Statement("read", self._reading().where(self._is_wanted()), single=one)
        self.list = Statement("list", self._listing())
        self.creates = [Statement("create", CreateTable(table, if_not_exists=True), rows=False)]

    def _purging(self, *, remove: Any, skip_locked: bool = True) -> None:
        """Set the statements of a purge: find rows that were free for long, then remove them by key."""
        columns = self.table.c
        idle = bindparam("idle", type_=BigInteger)
        # the token too lies that far back, so that a grant after the removal has a greater one
        self.old = and_(
            self.free,
            columns.expires_at <= self._before(idle),
            columns.fencing_token <= self._microseconds() - idle,
        )
        stale = select(columns.lock_key).where(self._starts_with_prefix(), self.old)
        stale = stale.order_by(columns.lock_key).limit(literal_column(str(PURGE_SLICE)))
        self.stale = Statement("stale", stale.with_for_update(skip_locked=True) if skip_locked else stale)
        removal = remove.where(self._is_wanted(), self.old)
        returning = not self.counts
        self.remove = Statement(
            "remove", removal.returning(columns.lock_key) if returning else removal, rows=returning
        )

    @abstractmethod
    def _before(self, span: ColumnElement[int]) -> ColumnElement[Any]: ...

    @abstractmethod
    def _microseconds(self) -> ColumnElement[int]: ...

    @abstractmethod
    def clock(self) -> ColumnElement[Any]:
        """Return the server's wall clock, which runs on during a statement where the server can."""

    @abstractmethod
    def batch(self, wants: Sequence[Want]) -> Parameters:
        """Return the parameters that hand these elements to a statement."""

    def asked(self, statement: Statement, wants: Sequence[Want]) -> tuple[Statement, Parameters]:
        """Return what to send for these elements: the statement, or its form for a single one."""
        return statement, self.batch(wants)

    @abstractmethod
    def keys(self, keys: Sequence[str]) -> Parameters:
        """Return the parameters of ``read``."""

    def looked(self, keys: Sequence[str]) -> tuple[Statement, Parameters]:
        """Return what to send to read the rows of these keys."""
        if len(keys) == 1 and self.read.single is not None and self._plain(keys[0]):
            return self.read.single, {"key": keys[0]}
        return self.read, self.keys(keys)

    def _plain(self, text: str) -> bool:
        """Return whether a text may be a parameter of its own, whatever the application's listeners set."""
        return True

    @abstractmethod
    def told(self, result: Result, wants: Sequence[Want]) -> dict[str, Answer]:
        """Return the answers that the result of claim, renew, release or break gives by itself."""

    @abstractmethod
    def instant(self, value: Any) -> datetime:
        """Return an aware UTC instant for a driver's value."""

    @staticmethod
    @abstractmethod
    def fault_kind(error: BaseException) -> FaultKind | None:
        """Classify a driver's error, or return ``None`` for one that is not the server's."""

    @abstractmethod
    def _is_wanted(self) -> ColumnElement[bool]: ...

    def _released(
        self, row: Any, want: Any, after: Callable[[ColumnElement[Any]], ColumnElement[Any]]
    ) -> dict[str, ColumnElement[Any]]:
        """What a release sets: free now, or taken by nobody until the minimum hold is over.

        ``after`` adds a span in microseconds to ``acquired_at``. The owner token of a minimum hold is
        nobody's, so that neither a second release nor a guard of the former holder succeeds.
        """
        end = after(row.acquired_at)
        stays = and_(want.t > literal_column("0"), end > self.clock())
        return {
            "owner_token": case((stays, constant("'released:'").concat(want.a)), else_=row.owner_token),
            "attempt": case((stays, constant("'released'")), else_=NOTHING),
            "expires_at": case((stays, end), else_=self.clock()),
        }

    def session_setup(self) -> Sequence[str]:
        """Return what each new session must be told, whatever the application's listeners set."""
        return ()

    def stored(self, row: Row) -> StoredLock:
        """Return a row of ``read`` or ``list``."""
        key, owner, attempt, kind, holder, server_lock, token, acquired_at, expires_at, held, seen_at = row
        return StoredLock(
            key,
            owner,
            attempt,
            kind,
            holder,
            server_lock,
            int(token),
            self.instant(acquired_at),
            self.instant(expires_at),
            bool(held),
            self.instant(seen_at),
        )

    def locker(self, row: Row) -> str:
        """Return a row of ``lockers`` for people."""
        number, name, state, since = row
        began = f" since {self.instant(since).isoformat()}" if since is not None else ""
        return f"session {number} ({name!r}, {state or 'state not shown'}{began})"

    def _reading(self) -> Select[*tuple[Any, ...]]:
        return select(*self._columns, self.held.label("held"), self.clock().label("seen_at"))

    def _starts_with_prefix(self) -> ColumnElement[bool]:
        # substr, not LIKE: a prefix may hold % and _, and must be compared byte for byte
        start = func.substr(self.table.c.lock_key, literal_column("1"), bindparam("length", type_=Integer))
        return start == bindparam("prefix", type_=String)

    def _listing(self) -> Select[*tuple[Any, ...]]:
        return self._reading().where(self._starts_with_prefix()).order_by(self.table.c.lock_key)
