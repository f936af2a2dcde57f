"""What the command line says beside its answer: one line each, on stderr, never with a password."""

from __future__ import annotations

import re
import sys
from contextlib import suppress

__all__ = ["masked", "printable", "say", "warn"]

# greedy up to the last "@": a password may itself hold one that was not written as %40
_IN_URL = re.compile(r"(://[^:/?\s@]*:)(?!password@)\S*@")
_IN_QUERY = re.compile(r"([?&]password=)[^&\s]*")


def say(text: str) -> None:
    """Write a line about what happened."""
    _write(f"sqllocks: {text}")


def warn(text: str) -> None:
    """Write a line about something that may need attention."""
    _write(f"sqllocks: warning: {text}")


def masked(text: str) -> str:
    """Return the text without the passwords of URLs in it, also where one went to the wrong argument."""
    return _IN_QUERY.sub(r"\1***", _IN_URL.sub(r"\1***@", text))


def printable(text: str) -> str:
    """Return the text with control characters escaped: a key may hold any, a terminal obeys them."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def _write(line: str) -> None:
    # where nobody reads it, that must not end a command that holds a lock
    with suppress(OSError):
        print(masked(printable(line)), file=sys.stderr, flush=True)
