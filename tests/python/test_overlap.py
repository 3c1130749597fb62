"""Rounds behind the training (COLLAB_OVERLAP=1): real torchruns of `--rdzv-backend=collab`, two ranks a site."""

from __future__ import annotations

import pytest
from ranks import expect_success, run_ranks
from torchruns import Nodes

pytestmark = pytest.mark.slow

OVERLAP = {"COLLAB_OVERLAP": "1"}


def test_two_sites_of_two_ranks_train_on_and_end_with_one_model(nodes: Nodes) -> None:
    paris, rome = nodes.start_pairs("paris", "rome", **OVERLAP)
    paris.wait_for_rounds(3, "paris", "rome")
    nodes.end_together(paris, rome)
    for name in ("paris", "rome"):
        told = [event for event in nodes.rounds(name) if event.get("overlap_seconds")]
        assert len(told) >= 3
        assert all(0 < event["merge_seconds"] <= event["stall_seconds"] < event["overlap_seconds"] for event in told)
        assert "rounds run behind the training (COLLAB_OVERLAP)" in (paris if name == "paris" else rome).output


def test_a_site_is_killed_in_mid_flight_and_another_joins(nodes: Nodes) -> None:
    paris, rome, oslo = nodes.start_pairs("paris", "rome", "oslo", COLLAB_SYNC_EVERY="5", **OVERLAP)
    oslo.kill()
    paris.wait_for_rounds(2, "paris", "rome")
    again = nodes.start("oslo", nnodes="3:4", nproc=2, conf="is_host=0", **OVERLAP, COLLAB_SYNC_EVERY="5")
    again.wait_for_rounds(2, "paris", "rome", "oslo")
    nodes.end_together(paris, rome, again)


def test_sites_that_differ_in_overlap_are_refused_with_both_values(nodes: Nodes) -> None:
    paris = nodes.start("paris", conf="is_host=1", **OVERLAP, COLLAB_JOIN_TIMEOUT="20s")
    rome = nodes.start("rome", conf="is_host=0", COLLAB_JOIN_TIMEOUT="20s")
    for node in (paris, rome):
        node.process.wait(90)
    said = paris.output + rome.output
    assert "COLLAB_OVERLAP differs between ranks" in said
    assert "has '1'" in said and "has '0'" in said


def test_a_script_sees_one_model_between_two_steps_and_skipped_steps_do_not_count() -> None:
    environment = {**OVERLAP, "COLLAB_SYNC_EVERY": "4"}
    for rank in expect_success(run_ranks("behind.py", ["a", "a", "b", "b"], environment=environment)):
        assert "done" in rank.output
