"""Names that people and rows see."""

from __future__ import annotations

import os
import socket

__all__ = ["default_holder"]


def default_holder() -> str:
    """Return ``host:pid`` of this process, asked anew so that it is right after a fork."""
    return f"{socket.gethostname()}:{os.getpid()}"[:255]
