"""How the time of test_hostile.py is divided among its attacks."""

from __future__ import annotations

import pytest
from hostiles import LONG, shares

AIMED = ("take-part", "churn", "terms")
NAMES = [*AIMED, "two-that-move", *(f"attack {number}" for number in range(22))]


def test_aimed_attacks_get_fixed_parts_of_a_short_run() -> None:
    plan = shares(NAMES, 40, AIMED, AIMED[:2])
    assert sum(plan.values()) == pytest.approx(40)
    assert plan["take-part"] == plan["churn"] == 8
    assert "terms" not in plan
    assert plan["attack 1"] == pytest.approx(24 / 23)


def test_in_the_hour_the_longest_bounds_are_reached() -> None:
    plan = shares(NAMES, 1200, AIMED, AIMED[:1])
    assert sum(plan.values()) == pytest.approx(1200)
    assert {name for name, seconds in plan.items() if seconds == 120} == set(LONG)
    assert plan["terms"] == pytest.approx(960 / 24)


@pytest.mark.parametrize("seconds", [300, 3600])
def test_between_and_beyond_all_have_the_same(seconds: float) -> None:
    assert set(shares(NAMES, seconds, AIMED, ()).values()) == {seconds / len(NAMES)}


def test_a_single_attack_has_the_whole_time() -> None:
    assert shares(["take-part"], 10, AIMED, AIMED) == {"take-part": 10}
    assert shares(["churn"], 40, AIMED, AIMED) == {"churn": 40}
