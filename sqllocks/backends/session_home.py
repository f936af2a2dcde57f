"""Which keys are held or asked for on one session: it may not ask for one twice, and they end with it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sqllocks.backends.port import Dedicated
from sqllocks.dialects.base import Want

__all__ = ["Home"]


@dataclass(slots=True, eq=False)
class Home:
    """One session and its keys.

    A key that was not ``taken`` yet waits for its turn on the session, be it this one or the next.
    """

    session: Dedicated
    _gate: dict[str, Want] = field(default_factory=dict[str, Want])
    _taken: dict[str, Want] = field(default_factory=dict[str, Want])

    def __len__(self) -> int:
        return len(self._gate)

    def enter(self, want: Want) -> bool:
        """Return whether nobody else in this process holds the key here, nor asks for it."""
        # one atomic step, so that of two threads one enters
        return self._gate.setdefault(want.key, want).attempt == want.attempt

    def take(self, wants: Iterable[Want]) -> None:
        """Note that the present session is about to be asked; to be called by who uses it."""
        self._taken.update({want.key: want for want in wants})

    def leave(self, wants: Iterable[Want]) -> None:
        """Let others have the keys, where these very attempts have them."""
        for want in wants:
            for known in (self._gate, self._taken):
                if _same(known.get(want.key), want):
                    known.pop(want.key, None)

    def carries(self, want: Want) -> bool:
        """Return whether the session that took the lock is still the present one."""
        return _same(self._taken.get(want.key), want)

    def still(self, wants: Iterable[Want]) -> list[Want]:
        """Return those that the present session was asked for."""
        return [want for want in wants if self.carries(want)]

    def found(self, want: Want) -> Want | None:
        """Return what stands at the gate for a release that may not name its attempt."""
        entered = self._gate.get(want.key)
        if entered is None or entered.owner != want.owner or want.attempt not in ("", entered.attempt):
            return None
        return entered

    def empty(self) -> list[Want]:
        """Forget what went with a session that has ended, and return it."""
        former, self._taken = list(self._taken.values()), {}
        self.leave(former)
        return former


def _same(entered: Want | None, want: Want) -> bool:
    return entered is not None and entered.attempt == want.attempt
