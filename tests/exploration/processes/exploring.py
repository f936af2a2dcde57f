"""Go everywhere that the processes of a scenario can come to."""

from __future__ import annotations

from tests.exploration.explorer import Counts, search
from tests.exploration.processes.lives import Lives
from tests.exploration.processes.moves import Moves
from tests.exploration.processes.programs import Scenario

__all__ = ["explore_processes"]


def explore_processes(scenario: Scenario, *, longest: int = 300) -> Counts:
    """Raise the shortest ``Counterexample`` there is; return how far it went."""
    lives = Lives(scenario)
    with lives.ready():
        return search(Moves(scenario, lives), longest)
