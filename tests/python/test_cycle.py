"""Which optimiser step ends a step of the model."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from torch_collab.cycle import PATIENCE, OptimizerCycle


def steps(cycle: OptimizerCycle, keys: str) -> list[int]:
    """How many model steps each optimiser step completes (before and after it)."""
    return [int(cycle.before(key)) + int(cycle.after(key)) for key in keys]


def test_one_optimizer_that_trains_everything_counts_from_its_first_step() -> None:
    cycle = OptimizerCycle()
    cycle.alone("a")
    assert steps(cycle, "aaa") == [1, 1, 1]


def test_two_in_turn_count_once_a_turn() -> None:
    # The first turn is known to be over when the second begins: it is counted there, before the step.
    assert steps(OptimizerCycle(), "dgdgdg") == [0, 0, 1, 1, 0, 1]


def test_the_last_one_need_not_step_every_turn() -> None:
    counts = steps(OptimizerCycle(), "dddgdddg")
    assert counts[3:] == [0, 0, 0, 0, 1]


def test_a_newcomer_becomes_the_last() -> None:
    cycle = OptimizerCycle()
    cycle.alone("a")
    assert steps(cycle, "aabab") == [1, 1, 0, 0, 1]


def test_an_optimizer_that_left_is_forgotten_after_a_while() -> None:
    cycle = OptimizerCycle()
    steps(cycle, "dgdg")
    counts = steps(cycle, "d" * (PATIENCE + 3))
    assert sum(counts[:PATIENCE]) == 0
    assert counts[PATIENCE:] != [0, 0, 0]


def test_a_single_turn_is_unfinished_business() -> None:
    cycle = OptimizerCycle()
    steps(cycle, "dg")
    assert cycle.unfinished()
    steps(cycle, "dg")
    assert not cycle.unfinished()


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=6, unique=True), st.integers(2, 20))
def test_any_fixed_order_counts_every_turn_once(order: list[str], turns: int) -> None:
    cycle = OptimizerCycle()
    counted = sum(steps(cycle, "".join(order) * turns)) + int(cycle.unfinished())
    assert counted == turns
