"""Leases in this process's memory: for tests and for programs that are one process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sqllocks.backends.base import Answers, Capabilities, Stored
from sqllocks.dialects.base import Answer, StoredLock, Verdict, Want
from sqllocks.schema import from_microseconds, to_microseconds

__all__ = ["MemoryLeases"]


class MemoryLeases:
    """The lease backend without a database; safe to use from several threads.

    The mutex is only ever held for dictionary work, so the asyncio form may take it too.
    """

    def __init__(self, clock: Callable[[], datetime] | None = None) -> None:
        self.capabilities = Capabilities()
        self._clock = clock or _utc_now
        self._rows: dict[str, StoredLock] = {}
        self._mutex = threading.Lock()

    async def claim(self, wants: Sequence[Want]) -> Answers:
        with self._mutex:
            return {want.key: self._claim(want, self._now()) for want in wants}

    async def renew(self, wants: Sequence[Want]) -> Answers:
        def renewed(want: Want, row: StoredLock, now: datetime) -> StoredLock:
            return replace(row, expires_at=now + timedelta(microseconds=want.ttl))

        return self._change(wants, _is_own, renewed)

    async def release(self, wants: Sequence[Want]) -> Answers:
        return self._change(wants, _is_own, lambda _, row, now: replace(row, attempt="", expires_at=now))

    async def break_(self, wants: Sequence[Want]) -> Answers:
        def broken(want: Want, row: StoredLock, now: datetime) -> StoredLock:
            return replace(row, owner=want.owner, attempt="", expires_at=now)

        return self._change(wants, lambda _, row: row.held, broken)

    async def read(self, keys: Sequence[str]) -> Stored:
        with self._mutex:
            now = self._now()
            return {key: _seen(self._rows[key], now) for key in keys if key in self._rows}

    async def list(self, prefix: str) -> Sequence[StoredLock]:
        with self._mutex:
            now = self._now()
            return [_seen(row, now) for key, row in sorted(self._rows.items()) if key.startswith(prefix)]

    async def create_table(self) -> None:
        """Do nothing: memory needs no table."""

    def _claim(self, want: Want, now: datetime) -> Answer:
        row = self._rows.get(want.key)
        if row is not None and _seen(row, now).held:
            verdict = Verdict.DONE if row.attempt == want.attempt else Verdict.REFUSED
            return Answer(verdict, row.token, row.expires_at)
        token = max(to_microseconds(now), row.token + 1 if row else 1)
        expires_at = now + timedelta(microseconds=want.ttl)
        self._rows[want.key] = StoredLock(
            want.key,
            want.owner,
            want.attempt,
            "lease",
            want.holder,
            "",
            token,
            now,
            expires_at,
            held=True,
            seen_at=now,
        )
        return Answer(Verdict.DONE, token, expires_at)

    def _change(
        self,
        wants: Sequence[Want],
        applies: Callable[[Want, StoredLock], bool],
        changed: Callable[[Want, StoredLock, datetime], StoredLock],
    ) -> Answers:
        answers: Answers = {}
        with self._mutex:
            now = self._now()
            for want in wants:
                row = self._rows.get(want.key)
                if row is None or not applies(want, _seen(row, now)):
                    answers[want.key] = Answer(Verdict.REFUSED)
                    continue
                after = self._rows[want.key] = changed(want, row, now)
                answers[want.key] = Answer(Verdict.DONE, after.token, after.expires_at)
        return answers

    def _now(self) -> datetime:
        # a naive clock is read as UTC
        return from_microseconds(to_microseconds(self._clock()))


def _utc_now() -> datetime:
    return datetime.now(UTC)


def _seen(row: StoredLock, now: datetime) -> StoredLock:
    return replace(row, held=row.attempt != "" and row.expires_at > now, seen_at=now)


def _is_own(want: Want, row: StoredLock) -> bool:
    return row.owner == want.owner and want.attempt in ("", row.attempt) and row.held
