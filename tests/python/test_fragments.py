"""Rounds of a part of the model (COLLAB_FRAGMENTS): real torchruns of `--rdzv-backend=collab`, two ranks a site."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ranks import expect_success, run_ranks
from torchruns import Node, Nodes

pytestmark = pytest.mark.slow

FRAGMENTS = {"COLLAB_FRAGMENTS": "3", "TEST_WIDTH": "64"}


def start(nodes: Nodes, *names: str, **environment: str) -> list[Node]:
    started = [
        nodes.start(
            name, "--max-restarts=10", nnodes=f"{len(names)}:4", nproc=2, conf=f"is_host={int(name == names[0])}",
            **FRAGMENTS, **environment,
        )
        for name in names
    ]  # fmt: skip
    started[0].wait_for_rounds(2, *names)
    return started


def rounds(nodes: Nodes, name: str) -> list[dict[str, Any]]:
    told = (json.loads(line) for line in (nodes.folder / f"{name}.jsonl").read_text().splitlines())
    return [event for event in told if event["event"] == "round" and "fragment" in event]


@pytest.mark.parametrize("overlap", ["0", "1"])
def test_fragments_take_turns_and_sites_end_with_one_model(nodes: Nodes, overlap: str) -> None:
    paris, rome = start(nodes, "paris", "rome", COLLAB_OVERLAP=overlap)
    paris.wait_for_rounds(4, "paris", "rome")
    nodes.end_together(paris, rome)
    for name in ("paris", "rome"):
        told = rounds(nodes, name)
        assert len(told) >= 6
        assert all(event["fragment"] == (event["round"] - 1) % 3 for event in told)


def test_a_site_is_killed_and_comes_back_while_fragments_take_turns(nodes: Nodes) -> None:
    paris, rome, oslo = start(nodes, "paris", "rome", "oslo", COLLAB_OVERLAP="1", COLLAB_SYNC_EVERY="9")
    oslo.kill()
    paris.wait_for_rounds(2, "paris", "rome")
    again = nodes.start(
        "oslo", nnodes="3:4", nproc=2, conf="is_host=0", COLLAB_OVERLAP="1", COLLAB_SYNC_EVERY="9", **FRAGMENTS
    )
    again.wait_for_rounds(4, "paris", "rome", "oslo")
    nodes.end_together(paris, rome, again)


def test_sites_with_other_fragments_are_refused_with_both_values(nodes: Nodes) -> None:
    paris = nodes.start("paris", conf="is_host=1", COLLAB_FRAGMENTS="2", COLLAB_JOIN_TIMEOUT="20s")
    rome = nodes.start("rome", conf="is_host=0", COLLAB_FRAGMENTS="4", COLLAB_JOIN_TIMEOUT="20s")
    for node in (paris, rome):
        node.process.wait(90)
    said = paris.output + rome.output
    assert "COLLAB_FRAGMENTS differs between ranks" in said
    assert "has '2'" in said and "has '4'" in said


def test_a_barrier_of_the_world_makes_one_model() -> None:
    environment = {"COLLAB_FRAGMENTS": "3", "COLLAB_SYNC_EVERY": "12"}
    for rank in expect_success(run_ranks("fragments.py", ["a", "a", "b", "b"], environment=environment)):
        assert "done" in rank.output
