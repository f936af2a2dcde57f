"""Connections that stay open between calls: what both forms share."""

from __future__ import annotations

__all__ = ["MAX_IDLE", "inherit"]

MAX_IDLE = 30.0
"""Seconds after which an idle connection is replaced: a firewall or server may have dropped it."""

# Connections that a parent process opened. They are kept, never closed nor collected: closing one in
# the child would say goodbye to the server in the parent's name.
_INHERITED: list[object] = []


def inherit(connections: object) -> None:
    """Keep the parent's connections untouched for as long as this child lives."""
    _INHERITED.append(connections)
