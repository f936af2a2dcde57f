"""Every line of the conformance list has a case, and says by its number which."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

LATER = {45, 46, 55, 56, 70}
LINES = sorted(set(range(1, 74)) - LATER | {155, 157})
SHARED = sorted(set(range(14, 55)) - LATER)
NEEDS_A_DATABASE = {29, 31}
APART = {54}  # memory reaches the same state by its clock
FOLDER = Path(__file__).parent


def cases() -> dict[int, list[str]]:
    """Return the heads of the cases of each line."""
    found: dict[int, list[str]] = {}
    for module in sorted(FOLDER.glob("test_*.py")):
        for match in re.finditer(r"^def test_c(\d{3})_\w+\([^)]*\)", module.read_text(), re.MULTILINE):
            found.setdefault(int(match[1]), []).append(match[0])
    return found


@pytest.mark.parametrize("line", LINES)
def test_a_line_has_a_case(line: int) -> None:
    assert cases().get(line)


@pytest.mark.parametrize("line", SHARED)
def test_c070_memory_and_table_pass_the_very_same_cases(line: int) -> None:
    if line not in NEEDS_A_DATABASE | APART:
        assert any(re.search(r"[( ]subject: Subject", head) for head in cases()[line])
