"""Buffers that are no part of the average: which they are, what is said of them, and what becomes infinite later."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from commands import Coordinator, collab
from ranks import Finished, Ranks, expect_success, listing, run_ranks
from torch import nn
from torch.nn.utils import prune
from torch_collab import log
from torch_collab.capture import forward
from torch_collab.model import vector
from torch_collab.world import state

EVERY = {"COLLAB_SYNC_EVERY": "4"}


class Wrapped(nn.Module):
    """As much of a DDP as collect() asks for."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module


class Part(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.register_buffer("mask", torch.tensor([0.0, float("-inf")]))
        self.register_buffer("table", torch.ones(3), persistent=False)
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("count", torch.tensor(3))


def collected(*modules: nn.Module, with_buffers: bool = True) -> dict[str, str]:
    ddps: list[Any] = [Wrapped(module) for module in modules]
    return {entry.name: entry.describe() for entry in vector.collect(ddps, {}, with_buffers)}


def test_non_persistent_and_non_finite_buffers_are_left_out() -> None:
    frozen = Part()
    frozen.weight.requires_grad_(False)
    assert collected(nn.Sequential(Part(), frozen)) == {
        "0.weight": "0.weight float32 [2] trained",
        "1.weight": "1.weight float32 [2] frozen",
        "0.mask": "0.mask float32 [2] left out",
        "0.table": "0.table float32 [3] left out",
        "0.mean": "0.mean float32 [4] buffer",
        "1.mask": "1.mask float32 [2] left out",
        "1.table": "1.table float32 [3] left out",
        "1.mean": "1.mean float32 [4] buffer",
    }
    assert list(collected(Part(), with_buffers=False)) == ["weight"]


def test_names_of_several_modules_and_of_tied_buffers() -> None:
    tied = nn.Sequential(Part(), Part())
    tied[1].table = tied[0].table
    kinds = collected(tied, Part())
    assert kinds["ddp0.0.table"].endswith(" left out") and kinds["ddp1.table"].endswith(" left out")
    assert "ddp0.1.table" not in kinds
    assert kinds["ddp1.mean"].endswith(" buffer")


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        (torch.tensor([1.0, float("nan")], dtype=torch.bfloat16), False),
        (torch.tensor([torch.finfo(torch.float32).min]), True),
        (torch.tensor([1e300], dtype=torch.float64), False),  # infinite as float32, which is how it would travel
        (torch.tensor([1e30], dtype=torch.float64), True),
        (torch.ones(2).to(torch.float8_e4m3fn), True),
        (torch.empty(0), True),
    ],
)
def test_buffers_are_left_out_if_they_would_not_be_finite_as_sent(values: torch.Tensor, kept: bool) -> None:
    module = nn.Linear(1, 1)
    module.register_buffer("table", values)
    (entry,) = [entry for entry in vector.collect([Wrapped(module)], {}, True) if entry.buffer]  # type: ignore[list-item]
    assert (entry.trained, entry.left_out, entry.kind) == (kept, not kept, "averaged" if kept else "left out")


@pytest.mark.parametrize("averages", [True, False])
def test_buffers_added_later_are_reported_once(monkeypatch: pytest.MonkeyPatch, averages: bool) -> None:
    told: list[str] = []
    monkeypatch.setattr(log, "_say", lambda level, message: told.append(message))
    ddp: Any = Wrapped(nn.Sequential(Part(), nn.Linear(2, 2)))
    followed = vector.Vector([ddp], vector.collect([ddp], {}, averages), 1)
    info = SimpleNamespace(several_sites=True, config=SimpleNamespace(buffers=averages))
    training = SimpleNamespace(vector=followed, session=object())
    world: Any = SimpleNamespace(run=state.Run(), is_leader=True, info=info, training=training)
    told.clear()

    def look() -> None:
        followed.look_again()
        forward._follow_parameters(world)

    look()
    assert told == [], "all were there"
    prune.l1_unstructured(ddp.module[1], "weight", amount=0.5)
    ddp.module[0].register_buffer("passing", torch.ones(2), persistent=False)
    ddp.module[0].register_buffer("causal", torch.tensor([0.0, float("-inf")]))
    ddp.module[0].register_buffer("calls", torch.tensor(0))
    ddp.module[0].register_buffer("same", ddp.module[0].mean)
    for _ in range(2):
        look()
    assert len(told) == averages
    assert not averages or (": 1.weight_mask. " in told[0] and "[capture.buffer-added]" in told[0]), told


def value(finished: Finished, name: str) -> float:
    found = re.search(rf"^{name} (\S+)$", finished.output, re.MULTILINE)
    assert found, finished.output
    return float(found[1])


@pytest.mark.slow
def test_a_mask_of_minus_infinity_does_not_stop_learning(tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    environment = {**EVERY, "COLLAB_EVENTS_FILE": str(events), "COLLAB_STATE_DIR": str(tmp_path)}
    finished = expect_success(run_ranks("buffers.py", ["a", "a", "b"], "plain", "24", environment=environment))
    for rank in finished:
        assert value(rank, "last") < 0.5 * value(rank, "first"), rank.output
        assert value(rank, "sum") == value(finished[0], "sum"), listing(finished)
        assert value(rank, "rounds") == 6 and "mask ok" in rank.output
        assert "declined" not in rank.output and "other values" not in rank.output, rank.output
    told = [json.loads(line) for line in events.read_text().splitlines()]
    rounds = [event for event in told if event["event"] == "round" and event["site"] == "a"]
    assert len(rounds) >= 6 and all(event["contributors"] == ["a", "b"] for event in rounds[:6]), rounds
    assert "left out of the average, because they are not persistent or not finite: attn_mask, places" in "".join(
        rank.output for rank in finished
    )
    # What is exported is the anchor: averaged buffers are in it, those left out are not.
    done = collab("export", "--state", str(tmp_path), "--out", str(tmp_path / "model.pt"))
    assert done.returncode == 0, done.stderr
    names = set(torch.load(tmp_path / "model.pt"))
    assert {"embedding.weight", "norm.running_mean", "seen"} <= names
    assert not {"attn_mask", "places"} & names


NAMED = ['infinity in buffer "seen" (element 0 of float32 [])', "COLLAB_BUFFERS=0", "persistent=False"]


@pytest.mark.slow
def test_a_buffer_that_becomes_infinite_ends_its_site_after_three_rounds() -> None:
    finished = run_ranks("buffers.py", ["a", "b", "b"], "later", "24", environment=EVERY)
    assert finished[0].status == 0, listing(finished)
    declined = "goes on without the contribution of b: " + NAMED[0]
    assert finished[0].output.count(f"round 2 {declined}") >= 1, listing(finished)
    assert f"round 4 {declined}" in finished[0].output, listing(finished)
    for rank in finished[1:]:  # both ranks of the site, in the same words
        assert rank.status == 1, listing(finished)
        assert "the update of site b was left out 3 times in a row: " + NAMED[0] in rank.output, listing(finished)
        assert all(text in rank.output for text in [*NAMED, "COLLAB_ON_NONFINITE=continue"]), listing(finished)


@pytest.mark.slow
def test_a_site_with_a_non_finite_buffer_trains_on_if_configured() -> None:
    environment = {**EVERY, "COLLAB_ON_NONFINITE": "continue"}
    finished = expect_success(run_ranks("buffers.py", ["a", "b"], "later", "24", environment=environment))
    assert all(value(rank, "rounds") == 6 for rank in finished)
    assert "round 5 goes on without the contribution of b: " + NAMED[0] in finished[0].output, listing(finished)


LISTS = "left out of the average: at a attn_mask, places; at b places. A buffer is left out if it is not persistent"


@pytest.mark.slow
def test_sites_of_one_world_that_leave_out_other_buffers_are_refused() -> None:
    finished = run_ranks("buffers.py", ["a", "b"], "other-mask", "4", environment=EVERY)
    assert LISTS in finished[0].output, listing(finished)
    assert "at b places; at a attn_mask, places." in finished[1].output, listing(finished)
    assert all(rank.status == 1 and "COLLAB_BUFFERS=0" in rank.output for rank in finished), listing(finished)


@pytest.mark.slow
def test_ranks_of_a_site_that_leave_out_other_buffers_are_refused() -> None:
    finished = run_ranks("buffers.py", ["a", "a"], "other-mask-at-rank-1", "4", environment=EVERY)
    for rank in finished:
        assert rank.status == 1, listing(finished)
        assert "the ranks of site a hold different models" in rank.output, listing(finished)
        assert "at rank 0 attn_mask, places; at rank 1 places." in rank.output, listing(finished)


@pytest.mark.slow
def test_separate_worlds_that_leave_out_other_buffers_are_refused() -> None:
    with Coordinator("--sites", "1") as coordinator:
        environment = {**EVERY, "COLLAB_COORDINATOR": coordinator.address}
        with Ranks("buffers.py", ["other-mask", "1000000"], [{**environment, "COLLAB_SITE": "a"}]) as first:
            first.wait_for_line(0, "training starts")
            with Ranks("buffers.py", ["other-mask", "4"], [{**environment, "COLLAB_SITE": "b"}]) as second:
                (refused,) = second.join()
            assert first.processes[0].poll() is None, "who was there first trains on"
    assert refused.status == 1, refused.output
    assert "buffers left out of the average: here places; at a attn_mask, places. A buffer" in refused.output


@pytest.mark.slow
def test_tables_that_differ_in_the_last_bit_are_one_warning() -> None:
    finished = expect_success(run_ranks("buffers.py", ["a", "b"], "other-table", "8", environment=EVERY))
    said = "".join(rank.output for rank in finished)
    assert "different values at b and at a, and each site keeps its own: places" in said or (
        "different values at a and at b, and each site keeps its own: places" in said
    ), said
    assert value(finished[0], "sum") == value(finished[1], "sum")
