"""Which optimizer step ends a step of the model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ranks import expect_success, listing, run_ranks
from torch_collab.model.cycle import LAST_ABSENT_STEPS, OptimizerCycle, OptimizerNumbers


def steps(cycle: OptimizerCycle, keys: str) -> list[int]:
    """How many model steps each optimizer step completes (before and after it). In capitals: of the whole model."""
    return [int(cycle.before(key)) + int(cycle.after(key, whole=key.isupper())) for key in keys]


def test_an_optimizer_that_trains_everything_counts_with_every_step() -> None:
    assert steps(OptimizerCycle(), "AAA") == [1, 1, 1]


def test_several_optimizers_that_train_everything_count_with_every_step() -> None:
    cycle = OptimizerCycle()
    assert steps(cycle, "AABBCABA") == [1] * 8
    assert cycle.to_introduce() is None and not cycle.owes_step


@pytest.mark.parametrize("order", ["Aa", "aA", "abA", "aAb", "Aab"])
def test_other_optimizers_do_not_count_beside_one_that_trains_everything(order: str) -> None:
    cycle = OptimizerCycle()
    counts = steps(cycle, order * 5)
    assert counts == [int(key.isupper()) for key in order * 5]
    assert cycle.owes_step == order[-1].islower()


def test_a_cycle_that_replaces_an_optimizer_of_everything_is_learned() -> None:
    cycle = OptimizerCycle()
    assert steps(cycle, "AAdgdgdg") == [1, 1, 0, 0, 1, 1, 0, 1]
    assert cycle.last == "g"


def test_two_optimizers_in_turn_count_once_a_turn() -> None:
    # The first turn is known to be over when the second begins: it is counted there, before the step.
    assert steps(OptimizerCycle(), "dgdgdg") == [0, 0, 1, 1, 0, 1]


def test_the_last_one_need_not_step_every_turn() -> None:
    counts = steps(OptimizerCycle(), "dddgdddg")
    assert counts[3:] == [0, 0, 0, 0, 1]


def test_a_newcomer_becomes_the_last() -> None:
    assert steps(OptimizerCycle(), "aabab") == [0, 2, 0, 0, 1]


def test_an_optimizer_that_left_is_waited_for_a_while_only() -> None:
    cycle = OptimizerCycle()
    steps(cycle, "dgdg")
    assert steps(cycle, "d" * (LAST_ABSENT_STEPS + 3)) == [0] * LAST_ABSENT_STEPS + [1, 1, 1]
    assert cycle.to_tell_of_who_left() == (LAST_ABSENT_STEPS, "g") and cycle.to_tell_of_who_left() is None
    steps(cycle, "gdgd")
    assert sum(steps(cycle, "gd" * 5)) == 5, "it came back"
    steps(cycle, "d" * LAST_ABSENT_STEPS)
    assert cycle.to_tell_of_who_left() is None, "once is enough"


def test_how_long_one_is_waited_for_goes_by_how_seldom_it_came() -> None:
    cycle = OptimizerCycle()
    steps(cycle, ("d" * 30 + "g") * 3)
    assert sum(steps(cycle, "d" * 119)) == 0
    assert steps(cycle, "d" * 3) == [0, 1, 1]


def test_blocks_that_are_trained_in_turn_are_counted() -> None:
    cycle = OptimizerCycle()
    for block in range(6):
        counted = sum(steps(cycle, "ab"[block % 2] * 100))
        assert counted >= 100 - LAST_ABSENT_STEPS - 1, block


def test_two_of_three_optimizers_continue_without_the_third() -> None:
    cycle = OptimizerCycle()
    steps(cycle, "abgabg")
    counted = steps(cycle, "ab" * 40)
    assert sum(counted[: 2 * LAST_ABSENT_STEPS - 1]) == 0 and counted[-20:] == [0, 1] * 10


@pytest.mark.parametrize(
    ("keys", "owes"),
    [("dg", True), ("dgdg", False), ("dgdgdd", True), ("dgdgddg", False), ("dgdge", True), ("A", False), ("Ad", True)],
)
def test_an_optimizer_that_stepped_since_the_last_counted_step_owes_one(keys: str, owes: bool) -> None:
    cycle = OptimizerCycle()
    steps(cycle, keys)
    assert cycle.owes_step == owes
    cycle.counted()
    assert not cycle.owes_step


def test_a_step_counted_because_a_round_came_is_not_counted_again() -> None:
    cycle = OptimizerCycle()
    steps(cycle, "dg")
    cycle.counted()
    assert steps(cycle, "dgdg") == [0, 1, 0, 1]


def test_optimizers_are_introduced_once_their_cycle_is_known_and_when_it_changes() -> None:
    cycle = OptimizerCycle()
    steps(cycle, "dg")
    assert cycle.to_introduce() is None, "it may be one turn of three"
    steps(cycle, "d")
    assert cycle.to_introduce() == (2, "g") and cycle.to_introduce() is None
    steps(cycle, "gdg")
    assert cycle.to_introduce() is None
    steps(cycle, "e")
    assert cycle.to_introduce() == (3, "e")


def test_one_optimizer_is_not_introduced() -> None:
    cycle = OptimizerCycle()
    steps(cycle, "AAA")
    assert cycle.to_introduce() is None and cycle.to_warn_of() == 0


@pytest.mark.parametrize(("rate", "told"), [(1, 0), (2, 2), (50, 50)])
def test_a_last_optimizer_that_steps_seldom_is_warned_of_once(rate: int, told: int) -> None:
    cycle = OptimizerCycle()
    steps(cycle, ("d" * rate + "g") * 2)
    assert cycle.to_warn_of() == 0, "once may be a warm-up"
    steps(cycle, ("d" * rate + "g") * 2)
    assert cycle.to_warn_of() == told and cycle.to_warn_of() == 0


def test_a_warm_up_of_one_optimizer_is_no_reason_to_warn() -> None:
    cycle = OptimizerCycle()
    steps(cycle, "d" * 50 + "gd" * 10)
    assert cycle.to_warn_of() == 0


class Optimizer:
    pass


def test_a_recreated_optimizer_keeps_its_number_at_any_address() -> None:
    head, body = frozenset({4, 5}), frozenset({0, 1})
    for kept in ([], [Optimizer()]):  # one rank frees what it dropped, and its address is used again; another does not
        numbers = OptimizerNumbers()
        told = []
        for epoch in range(4):
            optimizer = Optimizer()
            told.append(numbers.of(optimizer, head if epoch != 2 else body))
            kept.append(optimizer) if kept else None
            del optimizer
        assert told == [1, 1, 2, 1]


def test_an_optimizer_keeps_its_number_when_it_trains_other_parameters() -> None:
    numbers, optimizer = OptimizerNumbers(), Optimizer()
    assert [numbers.of(optimizer, frozenset({place})) for place in range(3)] == [1, 1, 1]


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=6, unique=True), st.integers(2, 20))
def test_any_fixed_order_counts_every_turn_once(order: list[str], turns: int) -> None:
    cycle = OptimizerCycle()
    counted = sum(steps(cycle, "".join(order) * turns)) + int(cycle.owes_step)
    assert counted == turns


@pytest.mark.parametrize(("rate", "sync_every", "warned"), [(1, "4", False), (50, "2", True), (50, "1h", False)])
def test_the_leader_reports_the_counted_optimizer_and_warns_if_it_steps_seldom(
    rate: int, sync_every: str, warned: bool
) -> None:
    environment = {"TEST_RATE": str(rate), "COLLAB_SYNC_EVERY": sync_every}
    finished = expect_success(run_ranks("rare_optimizer_steps.py", ["a", "a", "b"], environment=environment))
    for rank, leads in zip(finished, (True, False, True), strict=True):
        told = "2 optimizers train the model; a step is counted when SGD (the last of the cycle) has stepped"
        assert rank.output.count(told) == int(leads), listing(finished)
        assert rank.output.count("a step is counted only every") == int(leads and warned), listing(finished)
        if leads and warned:
            assert "every 50 steps" in rank.output and "COLLAB_SYNC_EVERY=2 means 100 steps" in rank.output
            assert "Lower COLLAB_SYNC_EVERY, or give it in seconds" in rank.output
