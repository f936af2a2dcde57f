"""Leases as rows of the lock table: one short autocommit statement at a time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from sqllocks.backends.base import Answers, Capabilities, Stored, tell_freed
from sqllocks.backends.port import Session, Sessions
from sqllocks.dialects.base import (
    REFUSALS,
    Answer,
    Fault,
    FaultKind,
    Parameters,
    Statement,
    StoredLock,
    Verdict,
    Want,
)

__all__ = ["LeaseTable", "change", "claim", "is_own", "was_own"]

MOST_LOCKED = 1000
"""Keys that a session remembers to be locked."""

Applies = Callable[[Want, StoredLock], bool]


class LeaseTable:
    """The lease backend of every SQL database; what differs is in the session's dialect."""

    def __init__(self, sessions: Sessions, capabilities: Capabilities) -> None:
        self._sessions = sessions
        self.capabilities = capabilities
        self._commits: dict[int, int] = {}
        self.freed: Callable[[str], None] = lambda _: None

    async def claim(self, wants: Sequence[Want]) -> Answers:
        async def work(session: Session) -> Answers:
            try:
                return await claim(session, wants)
            except Fault as fault:
                commits = session.sql.commits
                if commits is None or fault.kind not in REFUSALS:
                    raise
                # the file is locked, and a held key can be seen all the same
                return await self._seen_held(session, commits, wants, fault)

        return await self._sessions.use(work)

    async def _seen_held(
        self, session: Session, commits: Statement, wants: Sequence[Want], fault: Fault
    ) -> Answers:
        """Return the refusals that a read shows, or raise the fault of the claim."""
        try:
            [(number,)] = (await session.query(commits, {})).rows
            answers = await read_back(session, wants, _judge_claim)
        except Fault:
            raise fault from None
        if any(answer.verdict is Verdict.REFUSED for answer in answers.values()):
            return answers
        before, self._commits[id(session)] = self._commits.get(id(session)), number
        if before not in (None, number):
            # not one transaction that stays open, but many that come and go
            raise Fault(FaultKind.CONFLICT, fault.message) from fault.__cause__
        raise fault

    async def renew(self, wants: Sequence[Want], *, values: bool = True, revive: bool = False) -> Answers:
        async def work(session: Session) -> Answers:
            return await change(
                session,
                session.sql.revive if revive else session.sql.renew,
                wants,
                was_own if revive else is_own,
                values=values,
            )

        return await self._sessions.use(work)

    async def release(self, wants: Sequence[Want]) -> Answers:
        async def work(session: Session) -> Answers:
            return await change(session, session.sql.release, wants, is_own)

        answers = await self._sessions.use(work)
        return tell_freed(answers, self.freed)

    async def break_(self, wants: Sequence[Want]) -> Answers:
        async def work(session: Session) -> Answers:
            return await change(session, session.sql.break_, wants, _is_held)

        answers = await self._sessions.use(work)
        return tell_freed(answers, self.freed)

    async def read(self, keys: Sequence[str]) -> Stored:
        async def work(session: Session) -> Stored:
            return await _read(session, keys)

        return await self._sessions.use(work)

    def takeable(self, row: StoredLock) -> bool:
        return False

    async def lockers(self, key: str) -> Sequence[str]:
        async def work(session: Session) -> Sequence[str]:
            sql = session.sql
            if sql.lockers is None:
                return []
            return [sql.locker(row) for row in (await session.query(sql.lockers, {"key": key})).rows]

        return await self._sessions.use(work)

    async def list(self, prefix: str) -> Sequence[StoredLock]:
        async def work(session: Session) -> Sequence[StoredLock]:
            sql = session.sql
            result = await session.query(sql.list, {"prefix": prefix, "length": len(prefix)})
            return [sql.stored(row) for row in result.rows]

        return await self._sessions.use(work)

    async def purge(self, prefix: str, idle: int) -> int:
        async def work(session: Session) -> int:
            sql = session.sql
            found = await session.query(sql.stale, {"prefix": prefix, "length": len(prefix), "idle": idle})
            if not found.rows:
                return 0
            keys = [row[0] for row in found.rows]
            removed = await session.query(sql.remove, {**sql.keys(keys), "idle": idle})
            return len(removed.rows) if sql.remove.rows else removed.count

        return await self._sessions.use(work)

    async def create_table(self) -> None:
        async def work(session: Session) -> None:
            for statement in session.sql.creates:
                await session.query(statement, {})
            # an existing table of the same name need not be the library's
            await _read(session, ["?"])

        await self._sessions.use(work)


async def claim(session: Session, wants: Sequence[Want]) -> Answers:
    """Claim rows on a session: what is there and free, then what was never there."""
    sql = session.sql
    answers: Answers = {}
    left = wants
    if sql.claim_free is not None:
        answers = await told(session, sql.claim_free, wants)
        left = [want for want in wants if want.key not in answers]
        if not left:
            return answers
    answers |= await told(session, sql.claim, left)
    left = [want for want in left if want.key not in answers]
    if sql.won is not None and len(left) > 1:
        answers |= sql.told(await session.query(*sql.asked(sql.won, left)), left)
        left = [want for want in left if want.key not in answers]
    answers |= await read_back(session, left, _judge_claim)
    missing = [want for want in left if answers[want.key].verdict is Verdict.MISSING]
    if missing and sql.insert is not None:
        await session.query(*sql.asked(sql.insert, missing))
        answers |= await read_back(session, missing, _judge_claim)
    return answers


def told(session: Session, statement: Statement, wants: Sequence[Want]) -> Coroutine[Any, Any, Answers]:
    """Send a statement and return the answers that it gives by itself."""
    if len(wants) == 1 and not session.sql.single_skips:
        return _told_plainly(session, statement, wants[0])
    return _told(session, *session.sql.asked(statement, wants), wants)


async def _told(session: Session, asked: Statement, parameters: Parameters, wants: Sequence[Want]) -> Answers:
    result = await session.query(asked, parameters)
    if asked.counted and result.count > 0:
        return {wants[0].key: Answer(Verdict.DONE)}
    return session.sql.told(result, wants)


async def _told_plainly(session: Session, statement: Statement, want: Want) -> Answers:
    """Ask for one row by the statement that fails where it is locked, then by the one that skips it."""
    sql = session.sql
    if want.key not in session.locked:  # or the first question would be in vain again
        try:
            return await _told(session, *sql.asked(statement, [want]), [want])
        except Fault as fault:
            if fault.kind is not FaultKind.LOCKED:
                raise
        if len(session.locked) == MOST_LOCKED:
            session.locked.clear()
        session.locked.add(want.key)
    answers = await _told(session, statement, sql.batch([want]), [want])
    if answers:
        session.locked.discard(want.key)
    return answers


async def change(
    session: Session, statement: Statement, wants: Sequence[Want], applies: Applies, *, values: bool = False
) -> Answers:
    """Change the rows that ``applies`` is true of, and tell what became of each."""
    sql = session.sql
    if sql.counts:
        return await _change_counted(session, statement, wants, applies, values=values)
    answers = await told(session, statement, wants)
    left = [want for want in wants if want.key not in answers]
    return answers | await read_back(session, left, _judge_change(applies, Verdict.SKIPPED, Verdict.REFUSED))


async def _change_counted(
    session: Session, statement: Statement, wants: Sequence[Want], applies: Applies, *, values: bool
) -> Answers:
    """Change rows where the server counts them but does not name them (MySQL)."""
    sql = session.sql
    repeatable = statement in (sql.renew, sql.revive)
    answers: Answers = {}
    if len(wants) > 1 and not repeatable:
        # afterwards, a row freed now looks like one that was freed before
        assert sql.own is not None
        own = {row[0] for row in (await session.query(*sql.asked(sql.own, wants))).rows}
        answers = {want.key: Answer(Verdict.REFUSED) for want in wants if want.key not in own}
        wants = [want for want in wants if want.key not in answers]
        if not wants:
            return answers
    result = await session.query(*sql.asked(statement, wants))
    changed = result.count // 2  # ON DUPLICATE KEY UPDATE counts 2 for each row that it changed
    if changed == len(wants) and not values:
        return answers | {want.key: Answer(Verdict.DONE) for want in wants}
    if not repeatable:
        judge = _judge_change(applies, Verdict.SKIPPED, Verdict.DONE if len(wants) > 1 else Verdict.REFUSED)
        return answers | await read_back(session, wants, judge)
    judge = _judge_change(applies, Verdict.DONE, Verdict.REFUSED)
    after = await read_back(session, wants, judge)
    open_ = [want for want in wants if after[want.key].verdict is Verdict.DONE]
    if changed == len(open_):
        return after
    if len(wants) == 1:
        return after | {want.key: Answer(Verdict.SKIPPED) for want in open_}
    # some were skipped, and the count does not tell which: let each answer for itself
    for want in open_:
        after |= await _change_counted(session, statement, [want], applies, values=values)
    return after


async def _read(session: Session, keys: Sequence[str]) -> Stored:
    result = await session.query(*session.sql.looked(keys))
    rows = map(session.sql.stored, result.rows)
    return {row.key: row for row in rows}


async def read_back(
    session: Session, wants: Sequence[Want], judge: Callable[[Want, StoredLock | None], Verdict]
) -> Answers:
    if not wants:
        return {}
    stored = await _read(session, [want.key for want in wants])
    answers: Answers = {}
    for want in wants:
        row = stored.get(want.key)
        verdict = judge(want, row)
        answers[want.key] = Answer(verdict, row.token, row.expires_at) if row else Answer(verdict)
    return answers


def _judge_claim(want: Want, row: StoredLock | None) -> Verdict:
    if row is None:
        return Verdict.MISSING
    if row.attempt == want.attempt:
        return Verdict.DONE
    return Verdict.REFUSED if row.held else Verdict.SKIPPED


def _judge_change(
    applies: Applies, still: Verdict, otherwise: Verdict
) -> Callable[[Want, StoredLock | None], Verdict]:
    """Judge a row by whether the change would (``still``) apply to it."""
    return lambda want, row: still if row is not None and applies(want, row) else otherwise


def _is_held(want: Want, row: StoredLock) -> bool:
    return row.held and want.attempt in ("", row.attempt)


def is_own(want: Want, row: StoredLock) -> bool:
    """Return whether it is this owner's, and unexpired."""
    return was_own(want, row) and row.held


def was_own(want: Want, row: StoredLock) -> bool:
    """Return whether it is this owner's, expired or not."""
    return row.owner == want.owner and row.attempt != "" and want.attempt in ("", row.attempt)
