"""Properties of the names that servers know locks by."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sqllocks import LockValidationError
from sqllocks.naming import NAMINGS, advisory_id, from_halves, halves, lock_name

NAME = re.compile(r"sqllocks1:[a-z0-9_./:-]{0,20}:[0-9a-f]{32}")
MANY = 1_000_000

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=255)
places = st.tuples(texts, texts, texts.filter(bool))
signed = st.integers(-(1 << 63), (1 << 63) - 1)

each_naming = pytest.mark.parametrize("naming", NAMINGS)


def named(place: tuple[str, str, str], naming: str = "sha256") -> str:
    """Return the lock name of (database, prefix, key)."""
    database, prefix, key = place
    return lock_name(key, prefix=prefix, naming=naming, database=database)


@settings(deadline=None, database=None)
@given(places)
@example(("app", "", "\N{KELVIN SIGN}" * 255))
@example(("app", "", "İ" * 20))
def test_a_lock_name_is_short_and_knows_no_capitals(place: tuple[str, str, str]) -> None:
    name = named(place)
    assert len(name) <= 64
    assert NAME.fullmatch(name)


@settings(deadline=None, database=None)
@given(places)
def test_a_dlock_name_fits_as_well(place: tuple[str, str, str]) -> None:
    assert len(named(place, "fnv1a64").encode()) <= 64


@each_naming
@settings(deadline=None, database=None)
@given(place=places)
def test_an_advisory_id_is_a_signed_bigint_whose_halves_lead_back(
    place: tuple[str, str, str], naming: str
) -> None:
    identifier = advisory_id(place[2], prefix=place[1], naming=naming)
    assert -(1 << 63) <= identifier < 1 << 63
    assert from_halves(*halves(identifier)) == identifier


@settings(deadline=None, database=None)
@given(signed)
@example(-1)
@example(-(1 << 63))
@example(1 << 32)
def test_halves_are_unsigned_and_lead_back(identifier: int) -> None:
    classid, objid = halves(identifier)
    assert 0 <= classid < 1 << 32
    assert 0 <= objid < 1 << 32
    assert from_halves(classid, objid) == identifier


@settings(deadline=None, database=None)
@given(places, places)
@example(("", "a", "bc"), ("", "ab", "c"))
@example(("a", "b", "c"), ("ab", "", "c"))
@example(("", "1:a", "b"), ("", "", "1:ab"))
@example(("", "", "Job"), ("", "", "job"))
@example(("", "", "job "), ("", "", "job"))
def test_what_differs_is_named_differently(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    assert (named(one) == named(other)) is (one == other)
    same = advisory_id(one[2], prefix=one[1], naming="sha256") == advisory_id(
        other[2], prefix=other[1], naming="sha256"
    )
    assert same is (one[1:] == other[1:])


def test_every_way_to_cut_a_text_is_another_name() -> None:
    text = "1:a2:bc3:def"
    cuts = [(text[:i], text[i:j], text[j:]) for i in range(len(text)) for j in range(i, len(text))]
    assert len({named(cut) for cut in cuts}) == len(cuts)


@each_naming
def test_another_prefix_is_another_name(naming: str) -> None:
    prefixes = ("", "app1/", "app2/", "App1/")
    assert len({advisory_id("leader", prefix=prefix, naming=naming) for prefix in prefixes}) == 4
    assert len({named(("app", prefix, "leader"), naming) for prefix in prefixes}) == 4


def test_databases_of_one_server_are_kept_apart_except_for_dlock() -> None:
    assert named(("app", "", "leader")) != named(("other", "", "leader"))
    assert named(("app", "", "leader"), "fnv1a64") == named(("other", "", "leader"), "fnv1a64")


def test_an_unknown_naming_is_refused_with_the_choices() -> None:
    with pytest.raises(LockValidationError, match="'sha256' or 'fnv1a64', not 'md5'"):
        advisory_id("job", prefix="", naming="md5")
    with pytest.raises(LockValidationError, match="'sha256' or 'fnv1a64', not ''"):
        lock_name("job", prefix="", naming="", database="app")


def test_s29_a_million_names_meet_nowhere_and_spread_evenly() -> None:
    found = {advisory_id(f"tenant:{number}", prefix="", naming="sha256") for number in range(MANY)}
    assert len(found) == MANY
    negative = sum(identifier < 0 for identifier in found)
    # five standard deviations
    assert abs(negative - MANY / 2) < 5 * (MANY / 4) ** 0.5


def test_s29_names_of_either_naming_do_not_meet() -> None:
    numbers = range(MANY // 20)
    assert len({named(("app", "", f"tenant:{number}")) for number in numbers}) == len(numbers)
    dlock = {advisory_id(f"tenant:{number}", prefix="", naming="fnv1a64") for number in numbers}
    assert len(dlock) == len(numbers)
