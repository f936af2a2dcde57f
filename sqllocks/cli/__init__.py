"""The command line: ``sqllocks``, or ``python -m sqllocks``; needs the extra ``cli``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from sqllocks.cli import exits

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, by default that of the process, and return the exit code."""
    try:
        # late: everything behind it needs click, and this module has to be able to say so
        from sqllocks.cli.app import execute  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"click", "rich"}:
            raise
        print(
            f"sqllocks: the command line needs {error.name}, which is not installed: "
            "pip install 'sqllocks[cli]'",
            file=sys.stderr,
        )
        return exits.USAGE
    return execute(arguments)
