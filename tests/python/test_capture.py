"""How a script is caught, and what must keep working."""

from __future__ import annotations

import pytest
from ranks import expect_success, run_ranks

SITES = ["a", "a", "b", "b"]


@pytest.mark.slow
def test_ddp_stays_inside_its_site() -> None:
    for rank in expect_success(run_ranks("capture.py", SITES)):
        assert "done" in rank.output


@pytest.mark.slow
def test_ddps_own_options_still_work(request: pytest.FixtureRequest) -> None:
    for rank in expect_success(run_ranks("compat.py", SITES, seconds=200)):
        assert "done" in rank.output


@pytest.mark.slow
def test_sites_of_one_rank_and_the_debug_wrapper_of_torch() -> None:
    detail = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
    expect_success(
        run_ranks(
            "compat.py",
            ["a", "b"],
            "optimizer_inside_backward",
            "accumulation",
            "unused_parameters",
            environment=detail,
        )
    )
