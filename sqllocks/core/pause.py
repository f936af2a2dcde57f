"""When the pause of a background activity ends, as far as others add to its work meanwhile."""

from __future__ import annotations

from sqllocks.core.kept import NEVER

__all__ = ["Pause"]


class Pause:
    """Collects while the activity is awake what may end its next pause early.

    A look that has begun may miss what is added then. Nobody need wake the activity for it: while much is
    added one after another, that would let it look through everything else without a pause. Used from
    several threads without a lock.
    """

    def __init__(self) -> None:
        self.over()

    def over(self) -> None:
        """Collect from here on."""
        self._added: list[float] | None = []
        self._end = -NEVER

    def begin(self, end: float) -> float:
        """Begin a pause that is to end at ``end``; return when it has to end."""
        added = self._added
        # in this order: who adds too late to be counted here can see when the pause ends, and end it
        self._end = end
        self._added = None
        self._end = min(end, min(added or (), default=NEVER))
        return self._end

    def ends_for(self, moment: float) -> bool:
        """Note that there is something to do at ``moment``; return whether the pause is too long for it."""
        added = self._added  # once: the pause may begin right now
        if added is not None:
            added.append(moment)
        return moment < self._end
