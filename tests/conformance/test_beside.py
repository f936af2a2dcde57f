"""Cases of sections B, C and D with a crowd on the same provider, so that their calls share statements.

``SQLLOCKS_BESIDE=64`` puts a crowd beside every case of these sections.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance import test_b_acquire as b
from tests.conformance import test_b_races as races
from tests.conformance import test_c_extend as extend
from tests.conformance import test_c_release as release
from tests.conformance import test_d_fencing as fencing
from tests.conformance.crowd import Crowd
from tests.conformance.subject import Subject

CASES: tuple[Callable[[Subject], None], ...] = (
    b.test_c017_a_loser_sees_the_holders_token_and_expiry,
    b.test_c023_an_expired_lock_goes_to_another_with_a_greater_token,
    races.test_c019_one_of_many_gets_a_key_that_has_no_row,
    extend.test_c043_an_extend_after_a_takeover_leaves_the_new_holder,
    release.test_c034_a_second_release_is_false,
    fencing.test_c051_the_later_of_two_holders_has_the_greater_token_under_racing,
    fencing.test_c052_extend_and_release_change_no_token,
)


@pytest.mark.parametrize("case", CASES, ids=[case.__name__.removeprefix("test_") for case in CASES])
def test_a_crowd_changes_nothing(crowded_subject: Subject, case: Callable[[Subject], None]) -> None:
    with Crowd(crowded_subject.a):
        case(crowded_subject)
