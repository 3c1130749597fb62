"""What scripts do to the parameters they train, and several models in one process."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from commands import Coordinator
from ranks import Ranks, expect_success, listing, run_ranks

ENVIRONMENT = {"COLLAB_SYNC_EVERY": "4"}
TWO = ["a", "b"]
FOUR = ["a", "a", "b", "b"]


def run(sites: list[str], *cases: str, **environment: str) -> list[str]:
    finished = expect_success(run_ranks("generations.py", sites, *cases, environment={**ENVIRONMENT, **environment}))
    for rank in finished:
        assert "done" in rank.output
    return [rank.output for rank in finished]


@pytest.mark.slow
def test_the_vector_belongs_to_the_parameters_not_to_their_storage() -> None:
    cases = ["new_storage", "there_and_back", "assigned_before_the_first_forward", "assigned_while_it_trains"]
    for output in run(TWO, *cases, "second_wrapper"):
        assert "bit for bit what they were" not in output


@pytest.mark.slow
def test_several_ranks_follow_new_storage_and_refuse_objects_that_ddp_does_not_know() -> None:
    for output in run(FOUR, "new_storage", "second_wrapper", "assigned_at_several_ranks"):
        said = re.search("assigned_at_several_ranks: (.*)", output)
        assert said and "0.weight is not the Parameter object" in said[1] and "without assign=True" in said[1], output


@pytest.mark.slow
def test_another_model_is_another_generation() -> None:
    run(TWO, "folds", "gan", "one_that_comes_back", "unfreezing")
    run(FOUR, "folds", "unfreezing")


@pytest.mark.slow
def test_copies_made_before_the_first_training_forward_are_warned_of() -> None:
    outputs = run(TWO, "copied_late", "copied_early")
    assert [output.count("[capture.early-copy]") for output in outputs] == [0, 1], outputs
    assert "[capture.early-copy]" not in outputs[1].partition("copied_late ok")[0], outputs[1]


@pytest.mark.slow
def test_a_distributed_checkpoint_over_the_world_is_warned_of() -> None:
    for output in run(TWO, "checkpointed"):
        before, _, after = output.partition("saved over the site")
        assert "[capture.checkpoint-world]" not in before and after.count("[capture.checkpoint-world]") == 1, output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sites", "named"),
    [("aaa", "ranks 1, 2 of site a"), ("abb", "ranks 1, 2 of site b"), ("abc", "ranks 1, 2 of sites b, c")],
)
def test_a_rank_that_others_wait_for_is_named(sites: str, named: str) -> None:
    environments = [{"COLLAB_SITE": site, **ENVIRONMENT} for site in sites]
    with Ranks("generations.py", ["one_rank_alone"], environments) as ranks:
        ranks.wait_for_line(0, f"{named} have not come to the first training forward of generation 1")
        assert "[capture.ranks-late]" in ranks.output(0)


@pytest.mark.slow
def test_models_of_torchscript_are_trained_as_others() -> None:
    run(TWO, "torchscript")


@pytest.mark.slow
def test_a_site_that_is_ahead_waits_for_the_other() -> None:
    outputs = run(TWO, "uneven")
    assert "waits for b still at generation 1" in outputs[0], outputs[0]


@pytest.mark.slow
def test_a_parameter_unfrozen_without_a_new_wrapper_is_warned_of() -> None:
    for output in run(TWO, "unfrozen_without_a_new_wrapper"):
        assert output.count("0.weight was frozen when the model was wrapped") == 1, output


@pytest.mark.slow
def test_unseen_steps_are_warned_of_with_the_remedy() -> None:
    for output in run(TWO, "own_updates"):
        assert output.count("call torch_collab.step() after each update") == 1, output


@pytest.mark.slow
def test_a_delta_of_exactly_zero_is_reported_at_once() -> None:
    for output in run(TWO, "rate_of_zero"):
        assert "its parameters are bit for bit what they were then" in output, output
        assert "its learning rate is 0" in output


@pytest.mark.slow
def test_another_type_is_refused_by_name() -> None:
    for rank in run_ranks("generations.py", TWO, "other_type", environment=ENVIRONMENT):
        said = re.search("other_type: (.*)", rank.output)
        assert said and "4.bias was Float [3] when sites agreed on the model and is Double [3] now" in said[1], (
            rank.output
        )


@pytest.mark.slow
def test_a_site_that_is_behind_trains_alone_and_says_so_each_round(tmp_path: Path) -> None:
    """paris is at its third model when tokyo starts its script: it trains its first alone, and joins at the third."""
    with Coordinator("--sites", "1") as coordinator:
        common = {**ENVIRONMENT, "COLLAB_COORDINATOR": coordinator.address, "COLLAB_LINGER": "1s"}
        go = tmp_path / "go"
        paris = Ranks("folds.py", ["3", "wait", str(go)], [{**common, "COLLAB_SITE": "paris"}])
        try:
            paris.wait_for_line(0, "generation 3 trains")
            events = tmp_path / "events.jsonl"
            alone = {**common, "COLLAB_SITE": "tokyo", "COLLAB_EVENTS_FILE": str(events)}
            with Ranks("folds.py", ["3", "last", str(go)], [alone]) as tokyo:
                finished = tokyo.join()
            finished += paris.join()
        finally:
            paris.kill()
    assert [f.status for f in finished] == [0, 0], listing(finished)
    said = finished[0].output
    assert said.count("a round is due, but the swarm trains generation 3") >= 2, said
    rounds = [json.loads(line) for line in events.read_text().splitlines()]
    together = [event for event in rounds if event["event"] == "round" and len(event["members"]) == 2]
    assert together, said
