"""Every schedule of whole processes keeps the promises of held leases."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.exploration.catalogue import DEPTH
from tests.exploration.processes.catalogue import process_catalogue
from tests.exploration.processes.exploring import explore_processes

SCENARIOS = process_catalogue()


@pytest.mark.timeout(120 * 60 if DEPTH > 1 else 120)
@pytest.mark.parametrize("name", SCENARIOS)
def test_explore(name: str, record_property: Callable[[str, object], None]) -> None:
    counts = explore_processes(SCENARIOS[name], longest=300 * DEPTH)
    record_property("explored", str(counts))
    assert counts.cut == 0, "some schedules are longer than the explorer goes"
    assert counts.schedules > 50
