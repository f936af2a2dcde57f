"""Servers whose session locks exclude nobody are refused, before anybody is told that it holds one."""

from __future__ import annotations

import secrets

from sqllocks.backends.port import LockSession
from sqllocks.dialects.base import Want
from sqllocks.dialects.sessions import as_held
from sqllocks.errors import BackendUnsupported

__all__ = ["PROOF_AGE", "refuse", "refuse_pooler", "refuse_stub", "refuse_transaction_pooler"]

PROOF_AGE = 600.0
"""Seconds for which a server that was seen to exclude is not tested again."""
_TRIES = 3


def refuse(session: LockSession) -> None:
    """Raise ``BackendUnsupported`` where the server itself says what makes its locks worthless."""
    server = session.server
    if server.refusal:
        raise BackendUnsupported(
            f"session locks of this server do not exclude: {server.refusal}. Remedy: {server.remedy}."
        )


def refuse_pooler(expected: int | None, session: LockSession, pooler: str | None) -> bool:
    """Raise where a pooler stands before the server, unless it is said to be one that keeps sessions.

    ``expected`` is the number of the session that this connection was given when it began: behind any pooler
    it is another one. Returns whether there is a pooler, whose word is still to be tested.
    """
    if expected is None or expected == session.server.session:
        return False
    if pooler != "session":
        raise _pooled("it may give each statement to another session of the server")
    return True


async def refuse_transaction_pooler(first: LockSession, other: LockSession) -> None:
    """Raise where two connections share one session of the server, one transaction at a time."""
    sql = other.sql
    for _ in range(_TRIES):
        await other.query(sql.begin, {})
        try:
            row = (await other.query(sql.identity, {})).rows[0]
        finally:
            await other.query(sql.rollback, {})
        if sql.server(row).session == first.server.session:
            raise _pooled("it gives each transaction to another session, although pooler='session' was said")


async def refuse_stub(first: LockSession, other: LockSession) -> None:
    """Raise where a lock that one session holds is granted to another one too."""
    sql = first.sql
    name = f"sqllocks-test-{secrets.token_hex(8)}"
    want = sql.test(Want(name, name))
    taken = await first.query(sql.take, sql.named([want]))
    again = await other.query(sql.take, sql.named([want]))
    held = {row[0] for row in (await first.query(sql.beat, sql.named([want]))).rows}
    if as_held(again.rows[0][1]):
        await other.query(sql.unlock, sql.named([want]))
    unlocked = await first.query(sql.unlock, sql.named([want]))
    works = as_held(taken.rows[0][1]) and not as_held(again.rows[0][1]) and as_held(unlocked.rows[0][1])
    if not works or want.name not in held:
        raise BackendUnsupported(
            "session locks of this server do not exclude: a lock that one session held was "
            f"{'granted to another' if as_held(again.rows[0][1]) else 'not kept'}. "
            "Remedy: use leases, SqlLockProvider or strategy='lease'."
        )


def _pooled(how: str) -> BackendUnsupported:
    return BackendUnsupported(
        f"session locks cannot be held through this pooler: {how}, and the lock stays behind. Remedy: "
        "direct_url= with an address that leads straight to the server, or pooler='session' where the pooler "
        "is in session mode; leases (SqlLockProvider, strategy='lease') work through any pooler."
    )
