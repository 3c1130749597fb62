"""Around collectives: futures, objects, groups, point to point, errors; with and without torch's debug wrapper."""

from __future__ import annotations

from functools import partial

import pytest
from ranks import Finished, expect_success, listing, run_once, run_ranks

SITES = ["a", "b", "a", "b"]
WHAT = [
    "futures",
    "objects",
    "groups",
    "point_to_point",
    "changing_tags",
    "several_threads",
    "coalesced",
    "sparse",
    "refused",
    "different_calls",
]


WRAPPED = ["objects", "groups", "point_to_point"]


@pytest.fixture(scope="module")
def two_sites(tmp_path_factory: pytest.TempPathFactory) -> list[Finished]:
    """One world that does them all: to start four processes takes longer than everything that they do."""
    run = partial(run_ranks, "collective_semantics.py", SITES, *WHAT)
    return run_once(tmp_path_factory, "collective_semantics", run)


@pytest.fixture(scope="module")
def two_sites_wrapped(tmp_path_factory: pytest.TempPathFactory) -> list[Finished]:
    """Under torch's debug wrapper."""
    detail = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
    run = partial(run_ranks, "collective_semantics.py", SITES, *WRAPPED, environment=detail)
    return run_once(tmp_path_factory, "collective_semantics_wrapped", run)


@pytest.mark.parametrize("what", WHAT)
def test_two_sites(two_sites: list[Finished], what: str) -> None:
    assert all(f"{what}: as it should be" in rank.output for rank in two_sites), listing(two_sites)


@pytest.mark.slow  # the first of those that look at these worlds
def test_two_sites_end_well(two_sites: list[Finished], two_sites_wrapped: list[Finished]) -> None:
    expect_success([*two_sites, *two_sites_wrapped])


@pytest.mark.parametrize("what", WRAPPED)
def test_two_sites_under_torchs_debug_wrapper(two_sites_wrapped: list[Finished], what: str) -> None:
    assert all(f"{what}: as it should be" in rank.output for rank in two_sites_wrapped), listing(two_sites_wrapped)


def test_a_rank_in_a_barrier_is_reported() -> None:
    expect_success(run_ranks("collective_semantics.py", SITES, "barriers"))


def test_one_site() -> None:
    expect_success(run_ranks("collective_semantics.py", ["a"] * 4, "futures"))


def test_a_missing_rank_is_an_error_that_names_it() -> None:
    expect_success(run_ranks("collective_semantics.py", SITES, "missing_rank"))
