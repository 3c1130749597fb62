"""Every collective against torch's own Gloo, on random shapes, types and operations.

One site: the same bits as Gloo, always. Several sites: the same bits for data movement, integers, min and max; floating
sums in site order, the same at every rank. Means of integers, which Gloo has not, as plain torch divides their sums.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from ranks import Ranks, expect_success

WORLDS = {
    "one site": (["a", "a", "a"], [[0, 1, 2]]),
    "two sites": (["a", "a", "b", "b"], [[0, 1], [2, 3]]),
    "three sites, ranks mixed": (["b", "a", "c", "b", "a"], [[0, 3], [1, 4], [2]]),
}
MOVES = [
    "broadcast",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_coalesced",
    "gather",
    "scatter",
    "all_to_all",
    "all_to_all_single",
    "ring",
]
if os.environ.get("TEST_DEVICE"):
    MOVES.remove("all_to_all")  # Gloo of torch 2.11 has none for GPUs to compare with
REDUCTIONS = ["all_reduce", "all_reduce_coalesced", "reduce", "reduce_scatter", "reduce_scatter_tensor"]
REDUCE_OPS = ["SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"]
DTYPES = ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool"]


class CollectivesWorld:
    """Ranks that run the cases they are given, until they are told to stop."""

    def __init__(self, sites: list[str], order: list[list[int]]) -> None:
        self.size = len(sites)
        environments = [{"COLLAB_SITE": site, "TEST_SITES": json.dumps(order)} for site in sites]
        self.ranks = Ranks("collectives.py", [], environments)
        self.asked = 0

    def check(self, case: dict[str, object]) -> None:
        number, self.asked = self.asked, self.asked + 1
        self.ranks.store.set(f"case/{number}", json.dumps(case))
        answers = []
        for rank in range(self.size):
            try:
                answers.append(self.ranks.store.get(f"answer/{number}/{rank}").decode())
            except Exception as error:
                raise AssertionError(f"rank {rank} gave no answer: {error}\n{self.ranks.output(rank)}") from None
        assert answers == ["same"] * self.size, "\n".join(f"rank {r}: {a}" for r, a in enumerate(answers))

    def stop(self) -> None:
        self.ranks.store.set(f"case/{self.asked}", json.dumps({"op": "stop"}))
        expect_success(self.ranks.join())


@pytest.fixture(scope="module", params=list(WORLDS))
def world(request: pytest.FixtureRequest) -> Iterator[CollectivesWorld]:
    made = CollectivesWorld(*WORLDS[request.param])
    with made.ranks:
        yield made
        made.stop()


def cases(operations: list[str]) -> st.SearchStrategy[dict[str, object]]:
    return st.fixed_dictionaries(
        {
            "op": st.sampled_from(operations),
            "dtype": st.sampled_from(DTYPES),
            "reduce_op": st.sampled_from(REDUCE_OPS),
            "shape": st.lists(st.integers(1, 9), min_size=1, max_size=3),
            "root": st.integers(0, 2),
            "seed": st.integers(0, 10_000),
            "async": st.booleans(),
            "strided": st.booleans(),
        }
    )


def case(op: str, **changes: object) -> dict[str, object]:
    plain = {"dtype": "float32", "reduce_op": "SUM", "shape": [5], "root": 1, "seed": 1, "async": False}
    return {"op": op, "strided": False, **plain, **changes}


usual = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


@pytest.mark.slow
@usual
@given(case=cases(MOVES))
def test_data_movement_is_gloos(world: CollectivesWorld, case: dict[str, object]) -> None:
    world.check(case)


@pytest.mark.slow
@usual
@given(case=cases(REDUCTIONS))
@example(case=case("all_reduce", shape=[70_001]))  # shares between leaders do not divide evenly
@example(case=case("all_reduce", shape=[70_001], dtype="float16", reduce_op="AVG"))
@example(case=case("all_reduce", dtype="complex64"))
@example(case=case("all_reduce", dtype="complex64", reduce_op="AVG", strided=True, shape=[4, 3]))
@example(case=case("reduce_scatter_tensor", shape=[20_000, 2]))
@example(case=case("all_reduce", shape=[0]))
@example(case=case("all_reduce", dtype="bool", reduce_op="AVG"))  # refused by both
@example(case=case("all_reduce", dtype="int64", reduce_op="AVG"))
@example(case=case("all_reduce", dtype="int16", reduce_op="AVG", strided=True, shape=[40, 3]))
@example(case=case("all_reduce_coalesced", dtype="int8", reduce_op="AVG"))
@example(case=case("reduce", dtype="int32", reduce_op="AVG"))
@example(case=case("reduce_scatter", dtype="uint8", reduce_op="AVG"))
@example(case=case("reduce_scatter_tensor", dtype="int16", reduce_op="AVG", shape=[7, 2], **{"async": True}))
def test_reductions_are_gloos_or_in_site_order(world: CollectivesWorld, case: dict[str, object]) -> None:
    world.check(case)
