"""Collectives over ranks of several sites inside an optimizer's step(): large ones are refused, small ones told of."""

from __future__ import annotations

import pytest
from ranks import expect_success, run_ranks

SITES = ["a", "a", "b", "b"]
TOLD = "inside step(): each step waits for all sites"


@pytest.mark.parametrize("case", ["large", "subgroup", "closure", "compiled"])
def test_large_ones_are_refused_and_nothing_else_is(case: str) -> None:
    for rank in expect_success(run_ranks("step_collectives.py", SITES, case, seconds=150)):
        assert TOLD not in rank.output


@pytest.mark.parametrize("case", ["inside_site", "of_something_else"])
def test_collectives_inside_the_site_or_without_an_average_go_through(case: str) -> None:
    for rank in expect_success(run_ranks("step_collectives.py", SITES, case, seconds=150)):
        assert TOLD not in rank.output


@pytest.mark.parametrize(("case", "kind"), [("small", "Clipped"), ("nested", "Wrapping")])
def test_small_averaging_collectives_in_a_step_run_with_one_warning(case: str, kind: str) -> None:
    finished = expect_success(run_ranks("step_collectives.py", SITES, case, seconds=150))
    assert [rank.output.count(TOLD) for rank in finished] == [1, 0, 1, 0]
    assert f"{kind} calls all_reduce of 1 element over" in finished[0].output


def test_a_lone_site_may_call_any_collective_in_a_step() -> None:
    expect_success(run_ranks("step_collectives.py", ["a", "a"], "inside_site"))
