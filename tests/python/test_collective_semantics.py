"""Around collectives: futures, objects, groups, point to point, errors; with and without torch's debug wrapper."""

from __future__ import annotations

import pytest
from ranks import expect_success, run_ranks

SITES = ["a", "b", "a", "b"]
WHAT = [
    "futures",
    "objects",
    "groups",
    "point_to_point",
    "coalesced",
    "sparse",
    "refused",
    "different_calls",
    "barriers",
]


@pytest.mark.parametrize("what", WHAT)
def test_two_sites(what: str) -> None:
    expect_success(run_ranks("collective_semantics.py", SITES, what))


@pytest.mark.parametrize("what", ["objects", "groups", "point_to_point"])
def test_under_torchs_debug_wrapper(what: str) -> None:
    detail = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
    expect_success(run_ranks("collective_semantics.py", SITES, what, environment=detail))


def test_one_site() -> None:
    expect_success(run_ranks("collective_semantics.py", ["a"] * 4, "futures"))


def test_a_missing_rank_is_an_error_in_words() -> None:
    expect_success(run_ranks("collective_semantics.py", SITES, "missing_rank"))
