"""The application that brings the guarded `migrate`."""

from __future__ import annotations

from django.apps import AppConfig

__all__ = ["SqllocksConfig"]


class SqllocksConfig(AppConfig):
    """Names the application in ``INSTALLED_APPS``."""

    name = "sqllocks.contrib.django"
    label = "sqllocks"
    verbose_name = "sqllocks"
