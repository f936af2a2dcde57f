"""Every schedule of a few clients within a budget of faults keeps the promises of leases."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.exploration.catalogue import DEPTH, catalogue
from tests.exploration.explorer import explore

SCENARIOS = catalogue()


@pytest.mark.timeout(120 * 60 if DEPTH > 1 else 120)
@pytest.mark.parametrize("name", SCENARIOS)
def test_explore(name: str, record_property: Callable[[str, object], None]) -> None:
    counts = explore(SCENARIOS[name], longest=80 * DEPTH)
    record_property("explored", str(counts))
    assert counts.cut == 0, "some schedules are longer than the explorer goes"
    assert counts.schedules > 500
