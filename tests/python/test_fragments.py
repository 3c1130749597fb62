"""Rounds of a part of the model (COLLAB_FRAGMENTS): real torchruns of `--rdzv-backend=collab`, two ranks a site."""

from __future__ import annotations

import pytest
from ranks import expect_success, run_ranks
from torchruns import Nodes

pytestmark = pytest.mark.slow

FRAGMENTS = {"COLLAB_FRAGMENTS": "3", "TEST_WIDTH": "64"}


@pytest.mark.parametrize("overlap", ["0", "1"])
def test_fragments_take_turns_and_sites_end_with_one_model(nodes: Nodes, overlap: str) -> None:
    paris, rome = nodes.start_pairs("paris", "rome", COLLAB_OVERLAP=overlap, **FRAGMENTS)
    paris.wait_for_rounds(4, "paris", "rome")
    nodes.end_together(paris, rome)
    for name in ("paris", "rome"):
        told = [event for event in nodes.rounds(name) if "fragment" in event]
        assert len(told) >= 6
        assert all(event["fragment"] == (event["round"] - 1) % 3 for event in told)


def test_a_site_is_killed_and_comes_back_while_fragments_take_turns(nodes: Nodes) -> None:
    common = {"COLLAB_OVERLAP": "1", "COLLAB_SYNC_EVERY": "9", **FRAGMENTS}
    paris, rome, oslo = nodes.start_pairs("paris", "rome", "oslo", **common)
    oslo.kill()
    paris.wait_for_rounds(2, "paris", "rome")
    again = nodes.start("oslo", nnodes="3:4", nproc=2, conf="is_host=0", **common)
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


def test_after_a_world_barrier_all_sites_hold_one_model() -> None:
    environment = {"COLLAB_FRAGMENTS": "3", "COLLAB_SYNC_EVERY": "12"}
    for rank in expect_success(run_ranks("fragments.py", ["a", "a", "b", "b"], environment=environment)):
        assert "done" in rank.output
