"""The library as a user has it: from its wheel, in a virtual environment without the source tree."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

__all__ = ["Installed"]


class Installed:
    """A virtual environment with the wheel in it."""

    def __init__(self, wheel: Path, folder: Path) -> None:
        self.folder = folder
        venv.create(folder, with_pip=False)
        self.python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "install", "--quiet"]
        subprocess.run(
            [*pip, "--no-index", "--no-deps", "--disable-pip-version-check", str(wheel)],
            check=True,
            timeout=120,
        )
        # Alembic, SQLAlchemy and drivers are those of the tests; a path in here is searched last, and what
        # makes the source tree importable there is not read
        [packages] = (
            folder.glob("lib/python*/site-packages") if os.name != "nt" else [folder / "Lib/site-packages"]
        )
        (packages / "tests.pth").write_text(sysconfig.get_path("purelib") + "\n")

    def run(self, *arguments: str, cwd: Path) -> str:
        """Run its Python and return what it printed."""
        done = subprocess.run(
            [str(self.python), *arguments],
            cwd=cwd,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env={name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
        )
        assert done.returncode == 0, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout
