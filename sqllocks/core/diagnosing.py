"""Looking at a server as a doctor does: ask everything, and say what each answer means for locks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from sqllocks.backends.port import Session, Sessions
from sqllocks.diagnosis import Diagnosis, Finding
from sqllocks.dialects import checks_for
from sqllocks.dialects.base import Fault, FaultKind
from sqllocks.dialects.checks import Check
from sqllocks.dialects.sessions import Server
from sqllocks.errors import BackendUnsupported, LockError

__all__ = ["Clinic", "session_findings", "told", "unreachable"]

SKEW = timedelta(seconds=1)
"""A difference of two clocks that is worth a note."""
_ENDS_THE_SESSION = {"idle_session_timeout", "wait_timeout"}


class Clinic:
    """Asks a server. ``wall`` is this machine's clock, ``given`` what a session was numbered at its start."""

    def __init__(self, wall: Callable[[], datetime], given: Callable[[Session], int | None]) -> None:
        self._wall = wall
        self._given = given

    async def examine(self, sessions: Sessions, *, table: bool = True) -> list[Finding]:
        """Return all findings; what cannot be asked is a finding too. Never raises ``LockError``."""
        findings: list[Finding] = []

        async def work(session: Session) -> None:
            await self._examine(session, findings, table=table)

        try:
            await sessions.use(work)
        except Fault as fault:
            findings.append(_unreachable(fault.message))
        except LockError as error:
            code = "unsupported" if isinstance(error, BackendUnsupported) else "unavailable"
            findings.append(Finding("failure", code, _sentence(error.message)))
        return findings

    async def _examine(self, session: Session, findings: list[Finding], *, table: bool) -> None:
        checks = checks_for(session.sql)
        for check in checks.server:
            findings += await _asked(session, check)
        await self._look_for_pooler(session, findings)
        await self._compare_clocks(session, findings)
        if not table:
            return
        found = await _asked(session, checks.table)
        findings += found
        if any(finding.code == "table" and finding.level == "failure" for finding in found):
            return
        refused = [finding for check in checks.further for finding in await _asked(session, check)]
        if not refused:
            text = f"the account may use {session.sql.table.fullname} as locks need it"
            refused = [Finding("ok", "privileges", text)]
        # a read-only server refuses all that writes
        told_before = {"read-only", "standby"} & {finding.code for finding in findings}
        findings += [each for each in _once(refused) if each.code != "read-only" or not told_before]

    async def _look_for_pooler(self, session: Session, findings: list[Finding]) -> None:
        number, given = checks_for(session.sql).number, self._given(session)
        if number is None or given is None:
            return
        own = (await session.query(number, {})).rows[0][0]
        if int(own) != given:
            findings.append(
                Finding(
                    "warning",
                    "pooler",
                    "a pooler stands before the server: leases work through it, but waiters are not told of "
                    "releases and have to look for them, and session locks need a session that stays",
                    "direct_url= for lockers and electors, or pooler='session' where it keeps sessions",
                )
            )

    async def _compare_clocks(self, session: Session, findings: list[Finding]) -> None:
        before = self._wall()
        rows = (await session.query(checks_for(session.sql).time, {})).rows
        after, there = self._wall(), session.sql.instant(rows[0][0])
        skew = max(there - after, before - there, timedelta())
        if skew > SKEW:
            side = "ahead of" if there > after else "behind"
            text = (
                f"the server's clock is {skew.total_seconds():.1f} s {side} this machine's: no lock depends "
                "on it, but times that are shown are the server's"
            )
            findings.append(Finding("note", "clock", text, "keep clocks in step (NTP)"))
        else:
            findings.append(Finding("ok", "clock", "the server's clock and this machine's agree"))


class _Told(Protocol):
    """What a locker's session knows of its server."""

    server: Server | None
    unset: dict[str, str]


def unreachable(findings: Sequence[Finding]) -> bool:
    """Return whether there is no server to ask further."""
    return any(finding.code == "unreachable" for finding in findings)


def told(findings: Sequence[Finding], more: Sequence[Finding]) -> Diagnosis:
    """Return the diagnosis; a pooler through which session locks were seen to exclude is only a note."""
    if any((each.code, each.level) == ("session-locks", "ok") for each in more):
        text = "a pooler stands before the server, and keeps sessions"
        note = Finding("note", "pooler", text)
        findings = [note if each.code == "pooler" else each for each in findings]
    return Diagnosis((*findings, *more))


def session_findings(
    problem: LockError | None, session: _Told, lease: float, *, needed: bool = True
) -> list[Finding]:
    """Return what an attempt to open the session of a locker says; not ``needed``: leases would do."""
    if problem is not None and not isinstance(problem, BackendUnsupported):
        return [Finding("failure", "session-locks", _sentence(problem.message))]
    if problem is not None:
        if needed:
            return [Finding("failure", "session-locks", _sentence(problem.message))]
        text = f"electors lead with leases, because {_sentence(problem.message)}"
        return [Finding("note", "session-locks", text)]
    tested = "a lock that one session held was not granted to another one"
    findings = [Finding("ok", "session-locks", f"session locks exclude here: {tested}")]
    most = session.server.most_locks if session.server is not None else None
    if most is not None:
        text = f"one session may hold {most} session locks, a quarter of the server's room for locks"
        findings.append(Finding("ok", "session-room", text))
    for name, reason in session.unset.items():
        if name in _ENDS_THE_SESSION:
            text = f"the server does not end a session silent for {lease:g} s: it refused {name} ({reason})"
            remedy = "a frozen holder is ended by an administrator, or use leases"
            findings.append(Finding("warning", "session-lease", text, remedy))
        else:
            findings.append(Finding("note", "session-settings", f"the server refused {name} ({reason})"))
    return findings


async def _asked(session: Session, check: Check) -> list[Finding]:
    try:
        rows = (await session.query(check.statement, check.parameters)).rows
    except Fault as fault:
        if fault.kind is FaultKind.GONE:
            raise
        if check.refused is not None:
            return list(check.refused(fault))
        text = f"the server does not answer the question for its {check.statement.name} ({fault.message})"
        return [Finding("note", "not-shown", text)]
    return list(check.judge(rows))


def _once(findings: list[Finding]) -> list[Finding]:
    """Return the findings without those that say again that nothing can be written."""
    read_only = [finding for finding in findings if finding.code == "read-only"]
    return read_only[:1] or findings


def _unreachable(message: str) -> Finding:
    return Finding("failure", "unreachable", f"the database does not answer: {_sentence(message)}")


def _sentence(message: str) -> str:
    return message.rstrip(".")
