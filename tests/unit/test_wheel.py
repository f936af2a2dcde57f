"""The wheel carries the revisions and the marker of a typed package, and nothing of the tests."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder)]
    subprocess.run([*build, str(ROOT)], check=True, timeout=300, stdin=subprocess.DEVNULL)
    [path] = folder.glob("sqllocks-*.whl")
    return zipfile.ZipFile(path)


def test_contents(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    assert "sqllocks/py.typed" in names
    assert "sqllocks/migrations/env.py" in names
    assert "sqllocks/migrations/script.py.mako" in names
    assert "sqllocks/migrations/versions/sqllocks_0001_core_locks.py" in names
    assert not [name for name in names if name.startswith(("tests", "benchmarks", "migrations"))]


def test_metadata(wheel: zipfile.ZipFile) -> None:
    [name] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    text = wheel.read(name).decode()
    for extra in ("postgresql", "mysql", "sqlite", "alembic", "cli", "all"):
        assert f"Provides-Extra: {extra}\n" in text
    lines = [line for line in text.splitlines() if line.startswith("Requires-Dist:")]
    required = [line for line in lines if "extra ==" not in line]
    # [asyncio]: without greenlet the package cannot be imported
    names = [line.split()[1].partition(">")[0].partition("<")[0] for line in required]
    assert names == ["sqlalchemy[asyncio]"]
