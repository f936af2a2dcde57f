"""Where the revisions that ship with the library are."""

from __future__ import annotations

from pathlib import Path

__all__ = ["VERSION_TABLE", "script_location", "version_location"]

VERSION_TABLE = "sqllocks_version"
"""Where the revisions are noted that ``script_location()`` runs by themselves."""


def script_location() -> str:
    """Return the folder that holds ``env.py``: run alone, it migrates nothing but the lock table."""
    package = Path(__file__).resolve().parent.parent
    # the wheel carries the folder inside the package, a checkout beside it
    inside = package / "migrations"
    return str(inside if inside.is_dir() else package.parent / "migrations")


def version_location() -> str:
    """Return the folder of the revisions, for ``version_locations`` of an application's ``alembic.ini``.

    They form a branch of their own, labelled ``sqllocks``: use ``heads`` instead of ``head``, or
    ``sqllocks@head`` for this branch alone.
    """
    return str(Path(script_location()) / "versions")
