"""Times as options take them: seconds, or as in URLs."""

from __future__ import annotations

from typing import Any

import click

from sqllocks.addresses import seconds_in

__all__ = ["SPAN", "SpanRange"]

_NAME = "time such as 30, 500ms, 30s, 5m or 2h"


class _Span(click.types.FloatParamType):
    """Seconds, whatever their number; the library says what is too short or too long."""

    name = _NAME

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(_seconds(value), param, ctx)


class SpanRange(click.FloatRange):
    """Seconds within limits."""

    name = _NAME

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(_seconds(value), param, ctx)


SPAN = _Span()


def _seconds(value: Any) -> Any:
    seconds = seconds_in(value) if isinstance(value, str) else None
    return value if seconds is None else seconds
