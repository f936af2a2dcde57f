"""Leases as rows of the lock table: one short autocommit statement at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqllocks.backends.base import Answers, Capabilities, Stored
from sqllocks.backends.port import Session, Sessions
from sqllocks.dialects.base import Answer, Result, Statement, StoredLock, Verdict, Want

__all__ = ["LeaseTable"]


class LeaseTable:
    """The lease backend of every SQL database; what differs is in the session's dialect."""

    def __init__(self, sessions: Sessions, capabilities: Capabilities) -> None:
        self._sessions = sessions
        self.capabilities = capabilities

    async def claim(self, wants: Sequence[Want]) -> Answers:
        async with self._sessions.session() as session:
            sql = session.sql
            result = await session.query(sql.claim, sql.batch(wants))
            answers = sql.told(result, wants)
            left = [want for want in wants if want.key not in answers]
            answers |= await _read_back(session, left, _judge_claim)
            missing = [want for want in left if answers[want.key].verdict is Verdict.MISSING]
            if missing and sql.insert is not None:
                await session.query(sql.insert, sql.batch(missing))
                answers |= await _read_back(session, missing, _judge_claim)
            return answers

    async def renew(self, wants: Sequence[Want]) -> Answers:
        async with self._sessions.session() as session:
            return await _change(session, session.sql.renew, wants, _is_own, needs_values=True)

    async def release(self, wants: Sequence[Want]) -> Answers:
        async with self._sessions.session() as session:
            return await _change(session, session.sql.release, wants, _is_own)

    async def break_(self, wants: Sequence[Want]) -> Answers:
        async with self._sessions.session() as session:
            return await _change(session, session.sql.break_, wants, lambda _, row: row.held)

    async def read(self, keys: Sequence[str]) -> Stored:
        async with self._sessions.session() as session:
            return await _read(session, keys)

    async def list(self, prefix: str) -> Sequence[StoredLock]:
        async with self._sessions.session() as session:
            sql = session.sql
            result = await session.query(sql.list, {"prefix": prefix, "length": len(prefix)})
            return [sql.stored(row) for row in result.rows]

    async def create_table(self) -> None:
        async with self._sessions.session() as session:
            await session.query(session.sql.create, {})
            # an existing table of the same name need not be the library's
            await _read(session, ["?"])


async def _change(
    session: Session,
    statement: Statement,
    wants: Sequence[Want],
    applies: Callable[[Want, StoredLock], bool],
    *,
    needs_values: bool = False,
) -> Answers:
    sql = session.sql
    result = await session.query(statement, sql.batch(wants))
    answers = sql.told(result, wants)
    left = [want for want in wants if want.key not in answers]
    if not left:
        return answers
    if not sql.counts:
        return answers | await _read_back(session, left, _judge_change(applies, changed=False))
    changed = _changed_rows(result)
    if changed == len(left) and not needs_values:
        return answers | {want.key: Answer(Verdict.DONE) for want in left}
    if changed in (0, len(left)):
        return answers | await _read_back(session, left, _judge_change(applies, changed=changed > 0))
    # a count does not tell which were done: let each answer for itself
    for want in left:
        answers |= await _change(session, statement, [want], applies, needs_values=needs_values)
    return answers


def _changed_rows(result: Result) -> int:
    """MySQL counts 2 for each row that ON DUPLICATE KEY UPDATE changed."""
    return result.count // 2


async def _read(session: Session, keys: Sequence[str]) -> Stored:
    result = await session.query(session.sql.read, session.sql.keys(keys))
    rows = map(session.sql.stored, result.rows)
    return {row.key: row for row in rows}


async def _read_back(
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
    applies: Callable[[Want, StoredLock], bool], *, changed: bool
) -> Callable[[Want, StoredLock | None], Verdict]:
    def judge(want: Want, row: StoredLock | None) -> Verdict:
        if row is None or not applies(want, row):
            return Verdict.REFUSED
        return Verdict.DONE if changed else Verdict.SKIPPED

    return judge


def _is_own(want: Want, row: StoredLock) -> bool:
    return row.owner == want.owner and want.attempt in ("", row.attempt) and row.held
