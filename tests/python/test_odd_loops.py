"""Loops that are written unlike the usual one: their steps count and are averaged, or the log says what is missing."""

from __future__ import annotations

import subprocess
import sys

import pytest
from commands import PATIENCE
from forks import usual_environment
from ranks import SCRIPTS, Finished, expect_success, free_port, listing, run_once, run_ranks

EVERY_4 = {"COLLAB_SYNC_EVERY": "4"}
STEP_APART = {**EVERY_4, "COLLAB_HEARTBEAT": "500ms"}  # a round and a collective wait for each other for five of them
CASES = [
    "forward_by_name",
    "forward_by_its_parts",
    "samples_once",
    "sent_by_one_rank",
    "a_group_of_another_backend",
    "several_default_backends",
    "reduced_in_backward",
    "reduced_in_step",
    "sharded",
    "around_the_ddp",
    "forwards_unseen",
    "masters_by_hand",
    "without_gradients",
    "without_gradients_and_told",
    "told_without_a_model",
    "no_samples",
    "two_of_the_whole_in_turn",
    "a_new_optimizer_each_epoch",
    "a_new_optimizer_of_the_head_each_epoch",
    "two_new_optimizers_each_epoch",
    "a_cycle_in_a_barrier",
    "adapters_that_are_merged",
    "a_teacher",
    "a_copy_for_each_task",
    "a_copy_before_any_forward",
    "a_copy_that_takes_over",
    "a_barrier_beside_the_training",
    "a_whole_ddp_that_was_saved",
    "join_of_one_rank",
]
TOLD = {
    "samples_once": ["[optimizer.no-step-seen]"],
    "a_copy_before_any_forward": ["[optimizer.unseen-forward]", "[ddp.none-trained]"],
    "forwards_unseen": ["[optimizer.unseen-forward]", "[ddp.none-trained]"],
    "masters_by_hand": ["[optimizer.unseen]", "[optimizer.no-step-seen]"],
    "sent_by_one_rank": ["[capture.parameter-broadcast]"],
    "a_group_of_another_backend": ["[ddp.group-not-collab]"],
    "several_default_backends": ["[ddp.none-trained]"],
    "reduced_in_backward": ["[capture.gradients-over-sites]"],
    "sharded": ["[ddp.none-trained]"],
    "without_gradients": ["[capture.no-gradients]", "[ddp.none-trained]"],
    "told_without_a_model": ["[ddp.none-trained]"],
    "adapters_that_are_merged": ["[capture.frozen-changes]"],
    "no_samples": ["[round.no-samples]"],
    "a_barrier_beside_the_training": ["[round.barrier-thread]"],
}
CODES = sorted({code for codes in TOLD.values() for code in codes})


def part(rank: Finished, case: str) -> str:
    """What a rank has said in a case."""
    return rank.output.partition(f"{case}: begins")[2].partition(f"{case}: ended")[0]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> list[Finished]:
    """Two sites of one rank; one world after the other. A case that fails ends them."""

    def run() -> list[Finished]:
        ranks = run_ranks("odd_loops.py", ["a", "b"], *CASES, environment=EVERY_4, seconds=2 * PATIENCE)
        return expect_success(ranks)

    return run_once(tmp_path_factory, "odd_loops", run)


@pytest.mark.parametrize("case", CASES)
def test_each_odd_loop_ends_well_and_logs_its_warnings(world: list[Finished], case: str) -> None:
    for rank in world:
        said = part(rank, case)
        assert said, listing(world)
        # The leader tells what ends a run; here each rank is a site of its own.
        assert [code for code in CODES if code in said] == sorted(TOLD.get(case, [])), said


@pytest.mark.slow  # the first of those that look at the same world
def test_a_foreign_optimizer_is_no_reason_to_warn_of_unseen_forwards(world: list[Finished]) -> None:
    for rank in world:
        before, _, after = part(rank, "forwards_unseen").partition("now its own")
        assert "[optimizer.unseen-forward]" not in before and "[optimizer.unseen-forward]" in after


def test_parameters_broadcast_by_one_rank_are_warned_of_if_others_lose_steps(world: list[Finished]) -> None:
    for rank in world:
        before, _, after = part(rank, "sent_by_one_rank").partition("now between two rounds")
        assert "[capture.parameter-broadcast]" not in before and "[capture.parameter-broadcast]" in after


def test_a_group_of_another_backend_is_warned_of_once_where_it_is_of_several_sites(world: list[Finished]) -> None:
    for rank in world:
        before, _, after = part(rank, "a_group_of_another_backend").partition("now over both sites")
        assert "[ddp.group-not-collab]" not in before and after.count("[ddp.group-not-collab]") == 1


def test_a_merge_is_warned_of_once_where_sites_hold_models_of_their_own(world: list[Finished]) -> None:
    for rank in world:
        before, _, after = part(rank, "adapters_that_are_merged").partition("now between two rounds")
        assert "[capture.frozen-changes]" not in before and after.count("[capture.frozen-changes]") == 1
        assert "unmerge_adapter()" in after, "what changes it by rounding alone"


def test_training_without_gradients_is_warned_of_early_and_once(world: list[Finished]) -> None:
    for rank in world:
        before, _, after = part(rank, "without_gradients").partition("now twenty")
        found, _, more = after.partition("nothing more")
        assert [each.count("[capture.no-gradients]") for each in (before, found, more)] == [0, 1, 0]


def test_the_last_round_counts_what_the_cycle_had_not_ended(world: list[Finished]) -> None:
    ends = [
        line for rank in world for line in rank.output.splitlines() if line.startswith("a_cycle_in_a_barrier: 4 st")
    ]
    assert len(ends) == 2 and ends[0] == ends[1], ends


@pytest.mark.slow
def test_sites_a_step_apart_have_rounds_though_a_collective_comes_more_often() -> None:
    for rank in expect_success(run_ranks("odd_loops.py", ["a", "b"], "a_step_apart", environment=STEP_APART)):
        assert "[round.skipped]" not in rank.output or rank.output.count("[round.skipped]") == 1, rank.output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sites", "knobs"),
    [
        (["a", "a"], EVERY_4),
        (["a", "a", "b", "b"], EVERY_4),
        (["a", "a", "b", "b"], {"COLLAB_SYNC_EVERY": "10ms"}),
        (["a", "a", "b", "b"], {**EVERY_4, "COLLAB_OVERLAP": "1"}),
    ],
    ids=["one site", "two sites", "by time", "behind"],
)
def test_ranks_of_a_site_with_uneven_inputs_meet_in_a_round_after_join(sites: list[str], knobs: dict[str, str]) -> None:
    expect_success(run_ranks("odd_loops.py", sites, "uneven_inputs", environment=knobs))


@pytest.mark.slow
def test_a_barrier_waits_for_a_whole_overlapped_round_of_owed_steps() -> None:
    knobs = {**EVERY_4, "COLLAB_OVERLAP": "1"}
    expect_success(run_ranks("odd_loops.py", ["a", "b"], "a_cycle_in_a_barrier", environment=knobs))


@pytest.mark.slow
@pytest.mark.parametrize("case", ["a_new_optimizer_of_the_head_each_epoch", "two_new_optimizers_each_epoch"])
def test_ranks_of_a_site_know_a_new_optimizer_alike(case: str) -> None:
    """One rank may give it the address of an optimizer that is gone, and another not."""
    expect_success(run_ranks("odd_loops.py", ["a", "a", "b"], case, environment=EVERY_4))


def start_with(method: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**usual_environment(), **EVERY_4, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    command = [sys.executable, str(SCRIPTS / "forked.py"), method, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=2 * PATIENCE)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_ranks_that_multiprocessing_starts_have_a_last_round_and_leave(method: str) -> None:
    done = start_with(method)
    assert done.returncode == 0 and "all ranks have ended" in done.stdout, done.stdout + done.stderr
    for site in "ab":
        lines = [line for line in done.stderr.splitlines() if f"collab[{site}/" in line]
        assert sum("round 1: a, b averaged" in line for line in lines) == 1, done.stderr
    for site in "ab":
        assert f"{site} is no longer a member: left: the training script has ended" in done.stderr, done.stderr


@pytest.mark.slow
def test_a_forked_rank_that_fails_has_no_last_round() -> None:
    done = start_with("fork", "fails")
    assert done.returncode != 0 and "ValueError: as it happens" in done.stderr, done.stderr
    assert "[round.no-last]" in done.stderr and "averaged" not in done.stderr, done.stderr
