"""Installs the peers, one by one where they cannot be had together; tells why one is missing.

    python -m benchmarks.installing

The reasons are kept beside the installed packages, for the tables.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

PIP = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1"]
REASONS = Path(sys.prefix) / "peers-missing.json"
LIMIT = 240


def reasons() -> dict[str, str]:
    """Return why requirements could not be installed."""
    return json.loads(REASONS.read_text()) if REASONS.exists() else {}


def main() -> None:
    """Install the dependency group `bench`."""
    pyproject = Path(__file__).resolve().parents[1] / "pyproject.toml"
    wanted: list[str] = tomllib.loads(pyproject.read_text())["dependency-groups"]["bench"]
    missing: dict[str, str] = {}
    if _failure(wanted):
        missing = {each: why for each in wanted if (why := _failure([each]))}
    REASONS.write_text(json.dumps(missing))
    for requirement, why in missing.items():
        print(f"{requirement}: {why}", file=sys.stderr)


def _failure(requirements: list[str]) -> str:
    try:
        done = subprocess.run(
            [*PIP, *requirements], check=False, capture_output=True, text=True, timeout=LIMIT
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {LIMIT} s"
    if done.returncode == 0:
        return ""
    lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["pip failed"]
    return lines[0].removeprefix("ERROR: ")[:200]


if __name__ == "__main__":
    main()
