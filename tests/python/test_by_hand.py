"""Gradients reduced by hand in backward are reduced over the world; those of a communication hook over the site."""

from __future__ import annotations

import pytest
from ranks import Finished, expect_success, listing, run_once, run_ranks

SITES = ["a", "a", "b", "b"]
CASES = [
    "after accumulation",
    "tensor hooks",
    "beside a DDP",
    "beside a DDP with a hook",
    "beside a DDP with a chained hook",
    "torch's hooks",
    "a copy",
    "a pickle",
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> list[Finished]:
    """One that does them all, each with models of its own."""
    return run_once(tmp_path_factory, "by_hand", lambda: run_ranks("by_hand.py", SITES, *CASES))


@pytest.mark.parametrize("case", CASES)
def test_gradients_reduced_by_hand_have_the_values_of_the_script(world: list[Finished], case: str) -> None:
    assert all(f"{case}: as it should be" in rank.output for rank in world), listing(world)


def test_steps_of_a_script_that_reduces_by_hand_count_as_steps() -> None:
    for rank in expect_success(run_ranks("without_ddp.py", ["a", "b"], "reduces")):
        assert "[capture.collectives-every-step]" in rank.output, rank.output
        assert "[ddp.none" not in rank.output, "it averages by itself\n" + rank.output


def test_reducing_only_metrics_warns_that_nothing_is_averaged() -> None:
    for rank in expect_success(run_ranks("without_ddp.py", ["a", "b"])):
        before, _, after = rank.output.partition("all steps are done")
        assert before.count("[ddp.none-made]") == 1 and "[ddp.none-trained]" in after, rank.output


@pytest.mark.slow  # the first of those that look at this world
def test_the_world_of_these_cases_ends_well(world: list[Finished]) -> None:
    expect_success(world)
