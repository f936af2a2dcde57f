"""Names that people, rows and servers see."""

from __future__ import annotations

import hashlib
import os
import re
import socket
from dataclasses import dataclass
from functools import cache

from sqllocks.errors import LockValidationError

__all__ = [
    "LOCK_NAME_LENGTH",
    "NAMINGS",
    "LockNames",
    "advisory_id",
    "checked_naming",
    "default_holder",
    "from_halves",
    "halves",
    "lock_name",
]

NAMINGS = ("sha256", "fnv1a64")
"""How a key becomes a server-side name: the library's own way, and that of the Go package ``dlock``."""
LOCK_NAME_LENGTH = 64
"""Most characters that MySQL takes as the name of a lock."""

# a change of what is hashed needs a new number, or an old and a new release would both be granted
_VERSION = 1
_READABLE = 20
_UNREADABLE = re.compile(r"[^a-z0-9._/:-]+")
_DLOCK_ADVISORY_PREFIX = "beauty/dlock/"
_DLOCK_NAME_PREFIX = "beauty:dlock:"


def default_holder() -> str:
    """Return ``host:pid`` of this process, also right after a fork."""
    return _holder(os.getpid())


@cache
def _holder(pid: int) -> str:
    # one text for all leases of a process
    return f"{socket.gethostname()}:{pid}"[:255]


def checked_naming(naming: str) -> str:
    """Return the naming, or raise ``LockValidationError`` that tells the choices."""
    if naming not in NAMINGS:
        choices = " or ".join(repr(name) for name in NAMINGS)
        raise LockValidationError(
            f"naming must be {choices}, not {naming!r:.40}", details={"argument": "naming"}
        )
    return naming


def advisory_id(key: str, *, prefix: str, naming: str) -> int:
    """Return the signed 64-bit id of a PostgreSQL advisory lock; raises ``LockValidationError``.

    ``key`` is the full key, namespace and all; an empty ``prefix`` stands for the naming's own.
    """
    if checked_naming(naming) == "fnv1a64":
        hashed = _fnv1a64(((prefix or _DLOCK_ADVISORY_PREFIX) + key).encode()).to_bytes(8, "big")
    else:
        hashed = _sha256("advisory", prefix, key)
    return int.from_bytes(hashed[:8], "big", signed=True)


def lock_name(key: str, *, prefix: str, naming: str, database: str) -> str:
    """Return the name of a MySQL or MariaDB lock, 64 characters at most; raises ``LockValidationError``.

    These names are one space for the whole server and MySQL does not tell capitals apart: so "sha256"
    hashes the database in and writes small letters only. "fnv1a64" does neither, as ``dlock`` does not.
    """
    if checked_naming(naming) == "fnv1a64":
        name = (prefix or _DLOCK_NAME_PREFIX) + key
        encoded = name.encode()
        return name if len(encoded) <= LOCK_NAME_LENGTH else f"{_fnv1a64(encoded):016x}"
    # not str.lower(), which knows more capitals with each version of Python
    readable = _UNREADABLE.sub("_", key[:_READABLE].encode("ascii", "replace").lower().decode())
    return f"sqllocks{_VERSION}:{readable}:{_sha256('name', database, prefix, key)[:16].hex()}"


def halves(identifier: int) -> tuple[int, int]:
    """Return ``(classid, objid)`` as ``pg_locks`` shows an advisory id, both without sign."""
    return (identifier >> 32) & 0xFFFFFFFF, identifier & 0xFFFFFFFF


def from_halves(classid: int, objid: int) -> int:
    """Return the signed advisory id that ``pg_locks`` shows in these two columns."""
    unsigned = classid << 32 | objid
    return unsigned - (1 << 64) if unsigned >> 63 else unsigned


def _sha256(kind: str, *parts: str) -> bytes:
    # each part is led by its length, so that no two lists of parts are hashed alike
    encoded = "".join([f"{len(part)}:{part}" for part in parts])
    return hashlib.sha256(f"sqllocks:{_VERSION}:{kind}:{encoded}".encode()).digest()


def _fnv1a64(text: bytes) -> int:
    hashed = 0xCBF29CE484222325
    for byte in text:
        hashed = ((hashed ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return hashed


@dataclass(frozen=True, slots=True)
class LockNames:
    """How one locker names its keys at the server."""

    naming: str = "sha256"
    prefix: str = ""

    def advisory_id(self, key: str) -> int:
        """Return the id of an advisory lock."""
        return advisory_id(key, prefix=self.prefix, naming=self.naming)

    def lock_name(self, key: str, *, database: str) -> str:
        """Return the name of a named lock."""
        return lock_name(key, prefix=self.prefix, naming=self.naming, database=database)
