"""Bad input is refused in words that name what was expected, what came and what to do; nothing hangs."""

from __future__ import annotations

import signal

import pytest
from commands import PATIENCE, Coordinator, new_token
from ranks import Ranks, expect_success, listing, run_ranks
from torch_collab import native

TWO = ["a", "b"]


def refused(finished: list[object], *texts: str) -> None:
    for rank in finished:
        assert rank.status == 1, listing(finished)  # type: ignore[attr-defined, arg-type]
        for text in texts:
            assert text in rank.output, f"{text!r} is not in\n" + listing(finished)  # type: ignore[attr-defined, arg-type]
        assert "went through" not in rank.output  # type: ignore[attr-defined]


REFUSALS = {
    "COLLAB_SYNC_EVRY": ["COLLAB_SYNC_EVERY", "[knob.misspelt]"],  # the nearest known one
    "COLLAB_CODEC": ["zip", "fp16", "[knob.bad-value]"],
    "COLLAB_ROUND_TIMEOUT": ["5 parsecs", "[knob.bad-value]"],
    "COLLAB_CONNECTIONS": ["100000", "64", "[knob.bad-value]"],
    "bad option": ["zap", "fp16", "[knob.bad-value]"],
    "foreign options": ["torch_collab.Options", "[knob.foreign-options]"],
    "no world": ['init_process_group("collab")', "[ddp.no-world]"],
    "zero": ["process_group=torch_collab.site_group()", "[optimizer.zero]"],
    "post_local_sgd": ["process_group=torch_collab.site_group()", "[optimizer.model-averager]"],
    "fsdp": ["[ddp.fsdp]"],
    "too_early": ["[capture.synchronize-early]"],
}


@pytest.mark.slow
def test_refusals_name_what_came_and_what_to_do() -> None:
    for rank in expect_success(run_ranks("refusals.py", TWO)):
        said = dict(line.split(": ", 1) for line in rank.output.splitlines() if ": collab: " in line)
        for name, texts in REFUSALS.items():
            assert all(text in said.get(name, "") for text in texts), f"{name} said {said.get(name)!r}\n{rank.output}"
        assert "done" in rank.output


def test_a_bad_knob_at_one_rank_is_heard_at_the_others() -> None:
    environments = [{"COLLAB_SITE": "a"}, {"COLLAB_SITE": "b", "COLLAB_CODEC": "zip"}]
    with Ranks("bad.py", ["plain"], environments) as ranks:
        finished = ranks.join()
    refused(finished, "COLLAB_CODEC", "zip", "[knob.bad-value]")
    assert "rank 1 on" in finished[0].output


def test_knobs_that_differ_between_ranks() -> None:
    environments = [{"COLLAB_SITE": "a"}, {"COLLAB_SITE": "b", "COLLAB_CODEC": "int8"}]
    with Ranks("bad.py", ["plain"], environments) as ranks:
        refused(ranks.join(), "COLLAB_CODEC", "'fp16'", "'int8'", "[knob.ranks-differ]")


def test_settings_of_one_site_may_differ() -> None:
    environments = [
        {"COLLAB_SITE": "a"},
        {"COLLAB_SITE": "b", "COLLAB_EGRESS_BUDGET_GB": "50", "COLLAB_MAX_MBIT_UP": "80"},
    ]
    with Ranks("bad.py", ["plain"], environments) as ranks:
        expect_success(ranks.join())


# What Kubernetes puts into a pod beside a Service `collab`, and variables of somebody's own.
STRANGERS = {"COLLAB_SERVICE_HOST": "10.0.0.1", "COLLAB_PORT": "tcp://10.0.0.1:29500", "COLLAB_PORT_29500_TCP": "x",
             "COLLAB_MY_EXPERIMENT": "7", "COLLAB_TEAM": "blue"}  # fmt: skip


def test_foreign_variables_are_warned_of_once_a_site_and_end_nothing() -> None:
    environments = [{"COLLAB_SITE": site, **STRANGERS} for site in ("a", "a", "b")]
    with Ranks("bad.py", ["plain"], environments) as ranks:
        finished = ranks.join()
    expect_success(finished)
    assert [rank.output.count("[knob.foreign]") for rank in finished] == [1, 0, 1], listing(finished)
    assert all("COLLAB_MY_EXPERIMENT, COLLAB_TEAM" in rank.output for rank in (finished[0], finished[2]))
    assert all(rank.output.count("_EXPERIMENT") <= 1 for rank in finished)
    assert not any("COLLAB_PORT" in rank.output or "SERVICE" in rank.output for rank in finished), listing(finished)


@pytest.mark.parametrize("variable", ["COLLAB_CODDEC", "COLLAB_STATEDIR", "COLLAB_codec"])
def test_a_misspelt_variable_is_refused(variable: str) -> None:
    with pytest.raises(ValueError, match=rf"{variable} .*\[knob\.misspelt\]"):
        native.load_config({variable: "x"}, {})


def test_a_script_that_continues_after_an_error_is_told_the_error_again() -> None:
    for rank in expect_success(run_ranks("bad.py", TWO, "goes-on-from-errors", environment={"COLLAB_SYNC_EVERY": "2"})):
        assert rank.output.count("is left out") == 1, rank.output
        training, _, rest = rank.output.partition("in a barrier")
        barrier, _, end = rest.partition("at the end")
        assert "[round.after-error]" in training.partition("steps go on")[0], rank.output
        assert (training.count("[round.after-error]"), barrier.count("[round.after-error]")) == (2, 1), rank.output
        for said in (training, barrier, end):
            assert "0.extra was added to the model" in said and "[capture.parameter-added]" in said, rank.output
        assert "[round.no-last]" in end and "is handling an error" not in end, rank.output


def test_a_misspelt_variable_ends_a_script() -> None:
    with Ranks("bad.py", ["plain"], [{"COLLAB_SITE": "a", "COLLAB_CODDEC": "x"}]) as ranks:
        refused(ranks.join(), "COLLAB_CODDEC", "[knob.misspelt]")


# Also the one that serves the coordinator.
@pytest.mark.parametrize(("victim", "other"), [(1, 0), (0, 1)])
def test_a_site_that_dies_before_its_first_forward_is_not_waited_for_until_the_join_timeout(
    victim: int, other: int
) -> None:
    common = {"COLLAB_LINK_GRACE": "4s", "COLLAB_JOIN_TIMEOUT": "10m"}
    environments = [{"COLLAB_SITE": site, **common} for site in TWO]
    with Ranks("bad.py", [f"dies-at-{victim}"], environments) as ranks:
        finished = ranks.join()
    assert finished[victim].status == 3, listing(finished)
    refused([finished[other]], "[capture.sites-late]")
    assert "gone" in finished[other].output or "coordinator" in finished[other].output, listing(finished)
    if victim == 1:
        assert "rank 1 of b is gone" in finished[other].output, listing(finished)


@pytest.mark.slow
def test_models_that_differ_between_sites() -> None:
    finished = run_ranks("bad.py", TWO, "other-model-at-b")
    refused(finished, "[capture.models-differ]", "2.weight float32 [8, 16] trained", "2.weight float32 [9, 16] trained")


@pytest.mark.slow
def test_ranks_of_a_site_with_different_vectors_are_refused() -> None:
    finished = run_ranks("bad.py", ["a", "a"], "other-frozen-at-rank-1")
    refused(
        finished,
        "[capture.models-differ-in-site]",
        "0.bias float32 [16] trained",
        "0.bias float32 [16] frozen",
    )


@pytest.mark.slow
def test_a_coordinator_that_is_not_there() -> None:
    environment = {"COLLAB_COORDINATOR": "127.0.0.1:1", "COLLAB_JOIN_TIMEOUT": "12s"}
    finished = run_ranks("bad.py", ["a", "a"], "plain", environment=environment)
    refused(finished, "127.0.0.1:1", "JOIN_TIMEOUT", "[join.coordinator-silent]")


@pytest.mark.slow
def test_a_wrong_key_is_refused_at_once_on_both_sides() -> None:
    """Long before COLLAB_JOIN_TIMEOUT, 300 s: another try would not make it right."""
    keys = [new_token() for _ in range(2)]
    with Coordinator("--sites", "1", COLLAB_TRANSPORT="tcp", COLLAB_TOKEN=keys[0]) as coordinator:
        environment = {
            "COLLAB_COORDINATOR": coordinator.address, "COLLAB_TRANSPORT": "tcp", "COLLAB_TOKEN": keys[1],
            "COLLAB_JOIN_TIMEOUT": "300s",
        }  # fmt: skip
        finished = run_ranks("bad.py", ["a", "a"], "plain", environment=environment)
        refused(finished, coordinator.address, "the same COLLAB_TOKEN")
        coordinator.process.send_signal(signal.SIGINT)
        said, _ = coordinator.process.communicate(timeout=PATIENCE)
    assert "COLLAB_TOKEN" in said and "127.0.0.1" in said, said


def test_a_lone_site_that_cannot_be_dialled_dials_itself() -> None:
    """Its environment was made for sites behind NAT."""
    environment = {"COLLAB_ADVERTISE": "none", "COLLAB_TRANSPORT": "tcp", "COLLAB_JOIN_TIMEOUT": "20s"}
    for rank in expect_success(run_ranks("one_word.py", ["a", "a"], environment=environment)):
        assert "loss " in rank.output
