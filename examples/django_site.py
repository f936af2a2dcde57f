"""A Django project in one file, whose `migrate` runs once at a time, and whose locks use its own DATABASES.

    python examples/django_site.py migrate
    python examples/django_site.py pay 17

DJANGO_DB_ENGINE (postgresql, mysql, sqlite3), DJANGO_DB_NAME, _USER, _PASSWORD, _HOST and _PORT name the
database; without them it is a SQLite file in the present directory.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import django
from django.conf import settings
from django.core.management import execute_from_command_line

from sqllocks.contrib.django import lock_provider

settings.configure(
    DATABASES={
        "default": {
            "ENGINE": f"django.db.backends.{os.environ.get('DJANGO_DB_ENGINE', 'sqlite3')}",
            "NAME": os.environ.get("DJANGO_DB_NAME", "site.sqlite3"),
            "USER": os.environ.get("DJANGO_DB_USER", ""),
            "PASSWORD": os.environ.get("DJANGO_DB_PASSWORD", ""),
            "HOST": os.environ.get("DJANGO_DB_HOST", ""),
            "PORT": os.environ.get("DJANGO_DB_PORT", ""),
        }
    },
    INSTALLED_APPS=["sqllocks.contrib.django", "django.contrib.contenttypes", "django.contrib.auth"],
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    USE_TZ=True,
)


def pay(invoice: str) -> None:
    """Do something under a lock."""
    with lock_provider().hold(f"invoice:{invoice}", ttl=30) as lease:
        print(f"paying {invoice} under token {lease.fencing_token}")


def main(arguments: list[str]) -> Any:
    """Run a command of Django's, or `pay`."""
    if arguments[1:2] == ["pay"]:
        django.setup()
        return pay(arguments[2])
    return execute_from_command_line(arguments)


if __name__ == "__main__":
    main(sys.argv)
