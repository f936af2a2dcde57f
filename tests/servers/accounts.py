"""The account a server runs under: PostgreSQL and PgBouncer refuse to be root."""

from __future__ import annotations

import os
import pwd
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

ACCOUNTS = ("postgres", "nobody")
SOCKET_PATH_LIMIT = 60  # leaves room for a socket's name within the 104 bytes that macOS allows


@dataclass(frozen=True)
class Account:
    """An unprivileged account of this machine."""

    name: str
    uid: int
    gid: int


def unprivileged() -> Account | None:
    """Return the account to drop to, or None where this process is not root anyway."""
    if os.geteuid() != 0:
        return None
    for name in ACCOUNTS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(name, entry.pw_uid, entry.pw_gid)
    return Account("nobody", 65534, 65534)


def reaches(account: Account | None, path: Path) -> bool:
    """Tell whether the account may enter every directory above the path."""
    if account is None:
        return True
    return all(_may_enter(account, parent) for parent in path.resolve().parents)


def _may_enter(account: Account, directory: Path) -> bool:
    found = directory.stat()
    if found.st_uid == account.uid:
        return bool(found.st_mode & stat.S_IXUSR)
    if found.st_gid == account.gid:
        return bool(found.st_mode & stat.S_IXGRP)
    return bool(found.st_mode & stat.S_IXOTH)


def temporary_directory(account: Account | None) -> Path:
    """Make a directory that belongs to the account and that its sockets' paths fit into."""
    base = Path(tempfile.gettempdir()).resolve()
    if len(str(base)) > SOCKET_PATH_LIMIT or not reaches(account, base / "x"):
        base = Path("/tmp")
    directory = Path(tempfile.mkdtemp(prefix="sqllocks-", dir=base))
    give(account, directory)
    return directory


def give(account: Account | None, path: Path) -> None:
    """Hand one file or directory to the account."""
    if account is not None:
        os.chown(path, account.uid, account.gid)
