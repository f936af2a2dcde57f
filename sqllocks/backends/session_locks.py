"""Locks that belong to a session of the server, each with the row of its key.

The server-side lock is taken first, then the row, on the same session and before the lock is handed out;
where the row cannot be had, the server-side lock is given back. All locks of a session end with it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from sqllocks.backends.base import Answers, Capabilities, Stored, tell_freed
from sqllocks.backends.lease_table import LeaseTable, change, claim, is_own, was_own
from sqllocks.backends.port import Dedicated, LockSession, Session
from sqllocks.backends.session_home import Home
from sqllocks.dialects.base import Answer, Fault, FaultKind, StoredLock, Verdict, Want
from sqllocks.dialects.sessions import as_held
from sqllocks.errors import BackendUnavailable, LockError
from sqllocks.naming import LockNames
from sqllocks.schema import from_microseconds

__all__ = ["SessionLocks"]

T = TypeVar("T")

_NO_ROWS = (
    *(FaultKind.NO_TABLE, FaultKind.NO_SCHEMA),
    *(FaultKind.READ_ONLY, FaultKind.FORBIDDEN, FaultKind.UNSUPPORTED),
)
_UNKNOWN = from_microseconds(0)
"""The expiry of a lock that has no row."""


class SessionLocks:
    """The backend of session locks; a key always goes to the same one of ``sessions``."""

    def __init__(
        self,
        sessions: Sequence[Dedicated],
        capabilities: Capabilities,
        naming: LockNames,
        *,
        fencing: bool = True,
        most: int | None = None,
    ) -> None:
        self._homes = [Home(session) for session in sessions]
        self._naming = naming
        self._fencing = fencing
        self._most = most
        self._rows = LeaseTable(_First(sessions[0]), capabilities)
        self.capabilities = capabilities
        self.freed: Callable[[str], None] = lambda _: None
        self.lost: Callable[[Sequence[Want]], None] = lambda _: None
        """Called with the locks of a session that has ended."""
        for home in self._homes:
            home.session.ended = partial(self._ended, home)

    async def claim(self, wants: Sequence[Want]) -> Answers:
        return await self._each(wants, self._claim)

    async def renew(self, wants: Sequence[Want], *, values: bool = True, revive: bool = False) -> Answers:
        return await self._each(wants, partial(self._renew, values=values))

    async def release(self, wants: Sequence[Want]) -> Answers:
        return tell_freed(await self._each(wants, self._release), self.freed)

    async def break_(self, wants: Sequence[Want]) -> Answers:
        return tell_freed(await self._rows.break_(wants), self.freed)

    async def read(self, keys: Sequence[str]) -> Stored:
        return await self._rows.read(keys) if self._fencing else {}

    def takeable(self, row: StoredLock) -> bool:
        server = self._home(row.key).session.server
        if server is None or row.kind != "session":
            return row.kind == "session"
        # with another name, or on another incarnation of the server, the holder may still be there
        return row.server_lock.endswith(f"@{server.incarnation}")

    async def lockers(self, key: str) -> Sequence[str]:
        return await self._rows.lockers(key) if self._fencing else []

    async def list(self, prefix: str) -> Sequence[StoredLock]:
        return await self._rows.list(prefix) if self._fencing else []

    async def purge(self, prefix: str, idle: int) -> int:
        return await self._rows.purge(prefix, idle)

    async def create_table(self) -> None:
        await self._rows.create_table()

    async def contact(self) -> None:
        """Open the first session; raises ``Fault``, ``BackendUnsupported``."""

        async def nothing(session: LockSession) -> None:
            """Only to have been there."""

        await self._homes[0].session.use(nothing)

    def doubt(self, want: Want) -> None:
        """End the session of a lock that its holder does not trust any more."""
        if self.carries(want):
            self._home(want.key).session.cut()

    def carries(self, want: Want) -> bool:
        """Return whether the session that took the lock is still the present one."""
        return self._home(want.key).carries(want)

    # -- one session

    async def _claim(self, home: Home, wants: Sequence[Want]) -> Answers:
        entered = [want for want in wants if home.enter(want)]
        answers: Answers = {}
        if entered:
            try:
                answers = await home.session.use(partial(self._take, home, entered))
            except (Fault, LockError):
                # the server-side locks were given back, or their session has ended
                home.leave(entered)
                raise
        refused = [want for want in wants if _refused(answers.get(want.key))]
        return answers | await self._holders(home, refused)

    async def _take(self, home: Home, wants: Sequence[Want], session: LockSession) -> Answers:
        wants = self._named(session, wants)
        self._refuse_too_many(home, session)
        home.take(wants)
        sql = session.sql
        got = wants  # one that failed, by a timeout for example, may have been granted all the same
        answers = {want.key: Answer(Verdict.REFUSED) for want in wants}
        try:
            taken = {row[0]: row[1] for row in (await session.query(sql.take, sql.named(wants))).rows}
            got = [want for want in wants if as_held(taken.get(want.name))]
            _refuse_null([want for want in wants if taken.get(want.name) is None])
            if got and self._fencing:
                answers |= await claim(session, got)
            elif got:
                answers |= {want.key: Answer(Verdict.DONE, 0, _UNKNOWN) for want in got}
        except Fault as fault:
            if fault.kind is not FaultKind.GONE:
                await self._unlock(session, got)
            raise
        back = [want for want in got if answers[want.key].verdict is not Verdict.DONE]
        await self._unlock(session, back)
        home.leave([want for want in wants if answers[want.key].verdict is not Verdict.DONE])
        return answers

    async def _renew(self, home: Home, wants: Sequence[Want], *, values: bool) -> Answers:
        mine = home.still(wants)
        answers = {want.key: Answer(Verdict.REFUSED) for want in wants}
        if mine:
            work = partial(self._beat, home, mine, values=values)
            answers |= await home.session.use(work, opening=False)
        return answers

    async def _beat(
        self, home: Home, wants: Sequence[Want], session: LockSession, *, values: bool
    ) -> Answers:
        """Prove the locks and renew their rows in one statement; tell apart what failed of that."""
        answers = {want.key: Answer(Verdict.REFUSED) for want in wants}
        wants = self._named(session, home.still(wants))
        sql = session.sql
        if self._fencing and wants:
            # the lock of the session is the proof: a row that is over while a guard pins it goes on
            answers |= await change(session, sql.revive, wants, was_own, values=values)
        open_ = [want for want in wants if answers[want.key].verdict is not Verdict.DONE]
        if not open_:
            return answers
        held = {row[0] for row in (await session.query(sql.beat, sql.named(open_))).rows}
        for want in open_:
            if want.name not in held:
                answers[want.key] = Answer(Verdict.REFUSED)
            elif not self._fencing:
                answers[want.key] = Answer(Verdict.DONE, 0, _UNKNOWN)
        refused = [want for want in open_ if answers[want.key].verdict is Verdict.REFUSED]
        # its row was taken or broken: the server-side lock alone is nothing that anybody holds
        await self._unlock(session, [want for want in refused if want.name in held])
        home.leave(refused)
        return answers

    async def _release(self, home: Home, wants: Sequence[Want]) -> Answers:
        held = [known for want in wants if (known := home.found(want)) is not None]
        answers = {want.key: Answer(Verdict.REFUSED) for want in wants}
        if held:
            again = {want.key: want.ttl for want in wants}
            mine = [want._replace(ttl=again[want.key]) for want in held]
            try:
                answers |= await home.session.use(partial(self._free, home, mine), opening=False)
            except Fault as fault:
                if fault.sent:
                    raise
                home.leave(held)  # there was no session any more, and so no lock
        return answers

    async def _free(self, home: Home, wants: Sequence[Want], session: LockSession) -> Answers:
        answers = {want.key: Answer(Verdict.REFUSED) for want in wants}
        # what was never asked of this session, or went with the one before it, is not there to be unlocked
        home.leave([want for want in wants if not home.carries(want)])
        wants = self._named(session, home.still(wants))
        if not wants:
            return answers
        unlocked: dict[str, bool] = {}
        answers |= {want.key: Answer(Verdict.DONE) for want in wants}
        if self._fencing:
            try:
                rows, unlocked = await _free_rows(session, wants)
            except Fault as fault:
                if fault.kind in _NO_ROWS:  # there is nothing to ask again for
                    await self._unlock(session, wants)
                    home.leave(wants)
                raise
            answers |= rows
        rest = [
            want
            for want in wants
            if answers[want.key].verdict is not Verdict.SKIPPED and want.key not in unlocked
        ]
        names = await self._unlock(session, rest)
        unlocked |= {want.key: names.get(want.name, False) for want in rest}
        for key, was_held in unlocked.items():
            if not was_held:
                answers[key] = Answer(Verdict.REFUSED)
        home.leave([want for want in wants if want.key in unlocked])
        return answers

    async def _unlock(self, session: LockSession, wants: Sequence[Want]) -> dict[int | str, bool]:
        if not wants:
            return {}
        sql = session.sql
        try:
            result = await session.query(sql.unlock, sql.named(wants))
        except Fault as fault:
            # whatever the reason: what is still held is unknown, so the session has to go
            raise Fault(FaultKind.GONE, fault.message) from fault.__cause__
        return {row[0]: as_held(row[1]) for row in result.rows}

    # -- who is who

    async def _each(
        self,
        wants: Sequence[Want],
        work: Callable[[Home, Sequence[Want]], Coroutine[Any, Any, Answers]],
    ) -> Answers:
        answers: Answers = {}
        for home in self._homes:
            here = [want for want in wants if self._home(want.key) is home]
            if here:
                answers |= await work(home, here)
        return answers

    def _home(self, key: str) -> Home:
        return self._homes[zlib.crc32(key.encode()) % len(self._homes)]

    def _named(self, session: LockSession, wants: Iterable[Want]) -> Sequence[Want]:
        def named(want: Want) -> Want:
            name, server_lock = session.sql.names(want.key, self._naming, session.server)
            return want._replace(name=name, server_lock=server_lock)

        return [named(want) for want in wants]

    def _refuse_too_many(self, home: Home, session: LockSession) -> None:
        most = self._most if self._most is not None else session.server.most_locks
        if most is not None and len(home) > most:
            raise BackendUnavailable(
                f"this locker's session holds {most} locks already, and more could fill the lock table of "
                "the server, which then refuses new connections: raise max_locks_per_transaction there, and "
                "max_session_locks= here",
                details={"max_session_locks": most},
            )

    async def _holders(self, home: Home, refused: Sequence[Want]) -> Answers:
        """Return for refused keys what their rows say of the holder."""
        rows = await self.read([want.key for want in refused]) if refused else {}
        answers: Answers = {}
        for want in refused:
            row = rows.get(want.key)
            token, expires_at = (row.token, row.expires_at) if row is not None else (0, _UNKNOWN)
            answers[want.key] = Answer(Verdict.REFUSED, token, expires_at)
        return answers

    def _ended(self, home: Home) -> Callable[[], None]:
        former = home.empty()
        return lambda: self.lost(former)


class _First:
    """Lets statements on rows alone run on a locker's first session."""

    def __init__(self, session: Dedicated) -> None:
        self._session = session

    async def use(self, work: Callable[[Session], Coroutine[Any, Any, T]]) -> T:
        return await self._session.use(work)


async def _free_rows(session: LockSession, wants: Sequence[Want]) -> tuple[Answers, dict[str, bool]]:
    """Release rows, and the server-side locks with them where that is one statement."""
    sql = session.sql
    if not sql.unlocks_with_release:
        return await change(session, sql.release, wants, is_own), {}
    result = await session.query(*sql.asked(sql.release, wants))
    return sql.told(result, wants), dict(sql.unlocked(result))


def _refuse_null(errors: Sequence[Want]) -> None:
    if errors:
        raise Fault(FaultKind.FULL, "the server answered NULL when it was asked for a lock")


def _refused(answer: Answer | None) -> bool:
    return answer is None or (answer.verdict is Verdict.REFUSED and answer.expires_at is None)
