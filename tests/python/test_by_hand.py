"""Gradients reduced by hand in backward are reduced over the world; those of a communication hook over the site."""

from __future__ import annotations

import pytest
from ranks import expect_success, run_ranks

SITES = ["a", "a", "b", "b"]


@pytest.mark.parametrize("case", ["after accumulation", "tensor hooks"])
def test_without_ddp_models_stay_equal_on_all_ranks(case: str) -> None:
    expect_success(run_ranks("by_hand.py", SITES, case))


@pytest.mark.parametrize("case", ["beside a DDP", "beside a DDP with a hook", "beside a DDP with a chained hook"])
def test_beside_a_ddp_each_means_what_it_says(case: str) -> None:
    expect_success(run_ranks("by_hand.py", SITES, case))


def test_torchs_communication_hooks_give_the_sites_mean() -> None:
    expect_success(run_ranks("by_hand.py", SITES, "torch's hooks"))


@pytest.mark.parametrize("case", ["a copy", "a pickle"])
def test_copies_and_pickles_of_a_ddp_with_a_hook(case: str) -> None:
    expect_success(run_ranks("by_hand.py", SITES, case))
