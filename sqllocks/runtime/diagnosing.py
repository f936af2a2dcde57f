"""What a diagnosis needs of this machine: its clock, and what the drivers know of their sessions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqllocks.backends.port import Session
from sqllocks.core.diagnosing import Clinic
from sqllocks.runtime.dedicated import plainly_given

__all__ = ["CLINIC"]


def _wall() -> datetime:
    return datetime.now(UTC)


def _given(session: Session) -> int | None:
    driver: Any = getattr(session, "driver", None)
    return plainly_given(driver)


CLINIC = Clinic(_wall, _given)
"""Examines the server behind any sessions, in either form."""
