"""The examples run as they are, on SQLite and PostgreSQL; each asserts what it shows."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from sqlalchemy import URL

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize("name", ["audit", "outbox", "schedule", "compensate", "apscheduler_jobs"])
def test_it_runs(name: str, database: URL, capsys: pytest.CaptureFixture[str]) -> None:
    driver = "sqlite" if database.drivername == "sqlite" else "postgresql+psycopg"
    url = database.set(drivername=driver).render_as_string(hide_password=False)
    runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"](url)
    assert capsys.readouterr().out
