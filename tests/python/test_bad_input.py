"""Bad input is refused in words that name what was expected, what came and what to do; nothing hangs."""

from __future__ import annotations

import signal

import pytest
from commands import Coordinator, collab
from ranks import Ranks, expect_success, listing, run_ranks

TWO = ["a", "b"]


def refused(finished: list[object], *texts: str) -> None:
    for rank in finished:
        assert rank.status == 1, listing(finished)  # type: ignore[attr-defined, arg-type]
        for text in texts:
            assert text in rank.output, f"{text!r} is not in\n" + listing(finished)  # type: ignore[attr-defined, arg-type]
        assert "went through" not in rank.output  # type: ignore[attr-defined]


REFUSALS = {
    "COLLAB_SYNC_EVRY": ["COLLAB_SYNC_EVERY"],  # the nearest known one
    "COLLAB_CODEC": ["zip", "fp16"],
    "COLLAB_ROUND_TIMEOUT": ["5 parsecs"],
    "COLLAB_CONNECTIONS": ["100000", "64"],
    "bad option": ["zap", "fp16"],
    "foreign options": ["the collab backend takes torch_collab.Options"],
    "no world": ['call init_process_group("collab") first'],
    "zero": ["ZeroRedundancyOptimizer", "process_group=torch_collab.site_group()"],
    "post_local_sgd": ["PeriodicModelAverager", "process_group=torch_collab.site_group()"],
    "fsdp": ["FullyShardedDataParallel", "Use DistributedDataParallel"],
    "too_early": ["before the first training forward"],
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
        finished = ranks.join(40)
    refused(finished, "COLLAB_CODEC", "zip")
    assert "rank 1 on" in finished[0].output


def test_knobs_that_differ_between_ranks() -> None:
    environments = [{"COLLAB_SITE": "a"}, {"COLLAB_SITE": "b", "COLLAB_CODEC": "int8"}]
    with Ranks("bad.py", ["plain"], environments) as ranks:
        refused(ranks.join(40), "COLLAB_CODEC differs between ranks", "'fp16'", "'int8'")


def test_what_belongs_to_one_site_may_differ() -> None:
    environments = [{"COLLAB_SITE": "a"}, {"COLLAB_SITE": "b", "COLLAB_EGRESS_GB": "50", "COLLAB_MAX_MBIT_UP": "80"}]
    with Ranks("bad.py", ["plain"], environments) as ranks:
        expect_success(ranks.join(60))


# What Kubernetes puts into a pod beside a Service `collab`, and variables of somebody's own.
STRANGERS = {"COLLAB_SERVICE_HOST": "10.0.0.1", "COLLAB_PORT": "tcp://10.0.0.1:29500", "COLLAB_PORT_29500_TCP": "x",
             "COLLAB_MY_EXPERIMENT": "7", "COLLAB_TEAM": "blue"}  # fmt: skip


def test_variables_of_somebody_else_are_told_once_a_site_and_end_nothing() -> None:
    environments = [{"COLLAB_SITE": site, **STRANGERS} for site in ("a", "a", "b")]
    with Ranks("bad.py", ["plain"], environments) as ranks:
        finished = ranks.join(60)
    expect_success(finished)
    told = "warning: COLLAB_MY_EXPERIMENT, COLLAB_TEAM are in the environment and are not knobs"
    assert [rank.output.count(told) for rank in finished] == [1, 0, 1], listing(finished)
    assert all(rank.output.count("_EXPERIMENT") <= 1 for rank in finished)
    assert not any("COLLAB_PORT" in rank.output or "SERVICE" in rank.output for rank in finished), listing(finished)


@pytest.mark.parametrize("variable", ["COLLAB_CODDEC", "COLLAB_STATEDIR", "COLLAB_codec"])
def test_a_misspelt_variable_is_refused(variable: str) -> None:
    with Ranks("bad.py", ["plain"], [{"COLLAB_SITE": "a", variable: "x"}]) as ranks:
        refused(ranks.join(40), f"{variable} is not a knob of collab; the nearest one is COLLAB_")


# Also the one that serves the coordinator.
@pytest.mark.parametrize(("victim", "other"), [(1, 0), (0, 1)])
def test_a_site_that_dies_before_its_first_forward_is_not_waited_for_until_the_join_timeout(
    victim: int, other: int
) -> None:
    common = {"COLLAB_LINK_GRACE": "4s", "COLLAB_JOIN_TIMEOUT": "10m"}
    environments = [{"COLLAB_SITE": site, **common} for site in TWO]
    with Ranks("bad.py", [f"dies-at-{victim}"], environments) as ranks:
        finished = ranks.join(90)
    assert finished[victim].status == 3, listing(finished)
    refused([finished[other]], "not every site has come to its first training forward")
    assert "gone" in finished[other].output or "coordinator" in finished[other].output, listing(finished)
    if victim == 1:
        assert "rank 1 of b is gone" in finished[other].output, listing(finished)


@pytest.mark.slow
def test_models_that_differ_between_sites() -> None:
    finished = run_ranks("bad.py", TWO, "other-model-at-b")
    refused(
        finished, "sites hold different models", "2.weight float32 [8, 16] trained", "2.weight float32 [9, 16] trained"
    )


@pytest.mark.slow
def test_ranks_of_a_site_with_different_vectors() -> None:
    finished = run_ranks("bad.py", ["a", "a"], "other-frozen-at-rank-1")
    refused(
        finished,
        "the ranks of site a hold different models",
        "0.bias float32 [16] trained",
        "0.bias float32 [16] frozen",
    )


@pytest.mark.slow
def test_a_coordinator_that_is_not_there() -> None:
    environment = {"COLLAB_COORDINATOR": "127.0.0.1:1", "COLLAB_JOIN_TIMEOUT": "3s"}
    refused(
        run_ranks("bad.py", ["a", "a"], "plain", environment=environment, seconds=60), "127.0.0.1:1", "JOIN_TIMEOUT"
    )


@pytest.mark.slow
def test_a_wrong_key_is_refused_at_once_on_both_sides() -> None:
    """Long before COLLAB_JOIN_TIMEOUT, 300 s: another try would not make it right."""
    keys = [collab("token").stdout.split()[-1] for _ in range(2)]
    with Coordinator("--sites", "1", COLLAB_TRANSPORT="tcp", COLLAB_TOKEN=keys[0]) as coordinator:
        environment = {"COLLAB_COORDINATOR": coordinator.address, "COLLAB_TRANSPORT": "tcp", "COLLAB_TOKEN": keys[1]}
        finished = run_ranks("bad.py", ["a", "a"], "plain", environment=environment, seconds=60)
        refused(finished, coordinator.address, "the same COLLAB_TOKEN")
        coordinator.process.send_signal(signal.SIGINT)
        said, _ = coordinator.process.communicate(timeout=20)
    assert "COLLAB_TOKEN" in said and "127.0.0.1" in said, said


def test_a_lone_site_that_cannot_be_dialled_dials_itself() -> None:
    """Its environment was made for sites behind NAT."""
    environment = {"COLLAB_ADVERTISE": "none", "COLLAB_TRANSPORT": "tcp", "COLLAB_JOIN_TIMEOUT": "20s"}
    for rank in expect_success(run_ranks("one_word.py", ["a", "a"], environment=environment)):
        assert "loss " in rank.output
