"""From the row that a guard locked to a verdict, for every view of it."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from sqllocks import LockError, StaleFencingToken, TransactionConflict
from sqllocks.core.guard import Claim, checked_at_most, objection
from sqllocks.dialects.guards import GuardedRow, View

CLAIM = Claim("app:k", "k", "me", 7)


def row(**changes: Any) -> GuardedRow:
    values: dict[str, Any] = {"owner": "me", "attempt": "a", "token": 7, "live": True, "snapshot": 7}
    return GuardedRow(**{**values, **changes})


@pytest.mark.parametrize(
    ("view", "outcome"),
    [
        (View(row()), None),
        (View(row(), frozen=True), None),
        (View(row(), lagging=True), None),
        (View(None), "stale"),
        (View(None, frozen=True), "too old"),
        (View(None, lagging=True), "again"),
        (View(row(token=8, snapshot=8)), "stale"),
        (View(row(token=8, snapshot=8), frozen=True), "stale"),
        (View(row(token=8, snapshot=8), lagging=True), "stale"),
        (View(row(token=8, snapshot=6)), "stale"),
        (View(row(token=6, snapshot=6)), "stale"),
        (View(row(token=6, snapshot=6), frozen=True), "too old"),
        (View(row(token=6, snapshot=6), lagging=True), "again"),
        (View(row(owner="other")), "stale"),
        (View(row(attempt="")), "stale"),
        (View(row(attempt=""), frozen=True), "stale"),
        (View(row(live=False)), "stale"),
        (View(row(live=False), lagging=True), "stale"),
        (View(row(live=False), frozen=True), None),
        (View(row(snapshot=6)), "too old"),
        (View(row(snapshot=None)), "too old"),
        (View(row(snapshot=8)), None),
    ],
)
def test_each_view(view: View, outcome: str | None) -> None:
    found = objection(CLAIM, view)
    if outcome is None:
        assert found is None
        return
    assert isinstance(found, LockError)
    assert found.details["lock_key"] == "k"
    assert "app:" not in str(found)
    if outcome == "stale":
        assert isinstance(found, StaleFencingToken)
        assert found.details["fencing_token"] == 7
        assert found.details["present_token"] == (view.row.token if view.row else None)
        return
    assert isinstance(found, TransactionConflict)
    assert found.retryable is (outcome == "again")
    copy = pickle.loads(pickle.dumps(found))
    assert (copy.retryable, str(copy)) == (found.retryable, str(found))


def test_at_most_in_milliseconds() -> None:
    assert checked_at_most(None) is None
    assert checked_at_most(1.5) == 1500
    assert checked_at_most(0.0001) == 1
    assert checked_at_most(1e9) == 2**31 - 1
