"""Leases in this process's memory: for tests and for programs that are one process."""

from __future__ import annotations

import copy
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sqllocks.backends.base import Answers, Capabilities, Stored, tell_freed
from sqllocks.dialects.base import Answer, StoredLock, Verdict, Want
from sqllocks.schema import from_microseconds, to_microseconds

__all__ = ["MemoryLeases"]


class MemoryLeases:
    """The lease backend without a database; safe to use from several threads.

    The mutex is only ever held for dictionary work, so the asyncio form may take it too.
    """

    def __init__(self, clock: Callable[[], datetime] | None = None, *, kind: str = "lease") -> None:
        self.capabilities = Capabilities()
        self.freed: Callable[[str], None] = lambda _: None
        self._clock = clock or _utc_now
        self._kind = kind
        self._rows: dict[str, StoredLock] = {}
        self._pins: Counter[str] = Counter()
        self._mutex = threading.Lock()

    def of_kind(self, kind: str) -> MemoryLeases:
        """Return a view of the same memory, whose grants are of another kind."""
        view = copy.copy(self)
        view._kind = kind
        return view

    async def claim(self, wants: Sequence[Want]) -> Answers:
        with self._mutex:
            return {want.key: self._claim(want, self._now()) for want in wants}

    async def renew(self, wants: Sequence[Want], *, values: bool = True, revive: bool = False) -> Answers:
        def renewed(want: Want, row: StoredLock, now: datetime) -> StoredLock:
            return replace(row, expires_at=now + timedelta(microseconds=want.ttl))

        return self._change(wants, _was_own if revive else _is_own, renewed)

    async def release(self, wants: Sequence[Want]) -> Answers:
        return tell_freed(self._change(wants, _is_own, _released), self.freed)

    async def break_(self, wants: Sequence[Want]) -> Answers:
        def broken(want: Want, row: StoredLock, now: datetime) -> StoredLock:
            return replace(row, owner=want.owner, attempt="", expires_at=now)

        return tell_freed(self._change(wants, _is_held, broken, passes_pins=False), self.freed)

    async def read(self, keys: Sequence[str]) -> Stored:
        with self._mutex:
            now = self._now()
            return {key: _seen(self._rows[key], now) for key in keys if key in self._rows}

    def takeable(self, row: StoredLock) -> bool:
        return False

    async def lockers(self, key: str) -> Sequence[str]:
        return []

    async def list(self, prefix: str) -> Sequence[StoredLock]:
        with self._mutex:
            now = self._now()
            return [_seen(row, now) for key, row in sorted(self._rows.items()) if key.startswith(prefix)]

    async def purge(self, prefix: str, idle: int) -> int:
        with self._mutex:
            now = self._now()
            limit = now - timedelta(microseconds=idle)
            old = [
                key
                for key, row in self._rows.items()
                if key.startswith(prefix)
                and not _seen(row, now).held
                and row.expires_at <= limit
                and row.token <= to_microseconds(limit)
                and not self._pins[key]
            ]
            for key in old:
                del self._rows[key]
            return len(old)

    async def create_table(self) -> None:
        """Do nothing: memory needs no table."""

    def pin(self, key: str) -> StoredLock | None:
        """Hold off everybody but the holder until ``unpin``, and return the row; pins add up."""
        with self._mutex:
            self._pins[key] += 1
            row = self._rows.get(key)
            return _seen(row, self._now()) if row is not None else None

    def unpin(self, key: str) -> None:
        """Take one pin away, and tell waiters where that frees the key."""
        with self._mutex:
            self._pins[key] -= 1
            if self._pins[key]:
                return
            del self._pins[key]
            row = self._rows.get(key)
            free = row is not None and not _seen(row, self._now()).held
        if free:
            self.freed(key)

    def proven(self, key: str, owner: str, token: int) -> bool:
        """Return whether this grant is the newest one of its key, and unexpired."""
        with self._mutex:
            row = self._rows.get(key)
            if row is None or (row.owner, row.token) != (owner, token):
                return False
            return _seen(row, self._now()).held

    def _claim(self, want: Want, now: datetime) -> Answer:
        row = self._rows.get(want.key)
        if row is not None and _seen(row, now).held:
            verdict = Verdict.DONE if row.attempt == want.attempt else Verdict.REFUSED
            return Answer(verdict, row.token, row.expires_at)
        if row is not None and self._pins[want.key]:
            return Answer(Verdict.SKIPPED, row.token, row.expires_at)
        token = max(to_microseconds(now), row.token + 1 if row else 1)
        expires_at = now + timedelta(microseconds=want.ttl)
        self._rows[want.key] = StoredLock(
            want.key,
            want.owner,
            want.attempt,
            self._kind,
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
        *,
        passes_pins: bool = True,
    ) -> Answers:
        answers: Answers = {}
        with self._mutex:
            now = self._now()
            for want in wants:
                row = self._rows.get(want.key)
                if row is None or not applies(want, _seen(row, now)):
                    answers[want.key] = Answer(Verdict.REFUSED)
                    continue
                if not passes_pins and self._pins[want.key]:
                    answers[want.key] = Answer(Verdict.SKIPPED)
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


def _released(want: Want, row: StoredLock, now: datetime) -> StoredLock:
    end = row.acquired_at + timedelta(microseconds=want.ttl)
    if want.ttl > 0 and end > now:  # a minimum hold: taken by nobody until it is over
        return replace(row, owner=f"released:{want.attempt}", attempt="released", expires_at=end)
    return replace(row, attempt="", expires_at=now)


def _is_held(want: Want, row: StoredLock) -> bool:
    return row.held and want.attempt in ("", row.attempt)


def _is_own(want: Want, row: StoredLock) -> bool:
    return _was_own(want, row) and row.held


def _was_own(want: Want, row: StoredLock) -> bool:
    return row.owner == want.owner and row.attempt != "" and want.attempt in ("", row.attempt)
