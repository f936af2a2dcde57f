"""JSON in one form only, so that equal records give equal texts and hashes on every database."""

from __future__ import annotations

import hashlib
import json
from typing import Any, cast

from sqllocks.errors import LockValidationError

__all__ = ["canonical", "digest"]


def canonical(record: Any, *, argument: str) -> str:
    """Return the canonical JSON text: keys sorted, no blanks, and ASCII alone for any column.

    Raises ``LockValidationError`` for what JSON does not have: NaN, dates, sets, keys that are no text.
    """
    try:
        _check_keys(record)
        return json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise LockValidationError(
            f"{argument} must be plain JSON: {error}", details={"argument": argument}
        ) from error


def digest(*parts: str | int) -> str:
    """Return the SHA-256 of the parts, in hexadecimal; a list in JSON, so that no two lists look alike."""
    text = json.dumps(parts, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _check_keys(value: object) -> None:
    # json.dumps would turn the key 1 into "1", and then two records look the same
    if isinstance(value, dict):
        for key, inner in cast("dict[object, object]", value).items():
            if not isinstance(key, str):
                raise TypeError(f"the key {key!r} is no text")
            _check_keys(inner)
    elif isinstance(value, list | tuple):
        for inner in cast("list[object]", value):
            _check_keys(inner)
