"""`torchrun --rdzv-backend=collab`, with real torchrun processes on 127.0.0.1."""

from __future__ import annotations

import os
import shutil
import signal

import pytest
from commands import PATIENCE
from torchruns import Nodes

KEY = {"COLLAB_TOKEN": "k" * 40}


@pytest.mark.slow
def test_two_nodes_are_one_world_and_a_third_joins_late(nodes: Nodes) -> None:
    paris, rome = nodes.start("paris", nnodes="2:3"), nodes.start("rome", nnodes="2:3")
    paris.wait_for_rounds(2, "paris", "rome")
    starts = sorted(paris.starts() + rome.starts())
    assert starts == ["rank 0 of 2 start first-members restart 0", "rank 1 of 2 start first-members restart 0"]
    os.truncate(nodes.folder / "paris.jsonl", 0)  # as logrotate's copytruncate does
    oslo = nodes.start("oslo", nnodes="2:3")
    oslo.wait_for_rounds(2, "paris", "rome", "oslo")
    assert oslo.starts() == ["rank 0 of 1 start lone restart 0"]
    nodes.end_together()
    told = nodes.rounds("paris")  # each line is whole, from the file's start on
    assert any(set(event["contributors"]) == {"paris", "rome", "oslo"} for event in told)
    assert len(paris.pids()) == len(rome.pids()) == 1
    assert [node.output.count("COLLAB_STATE_DIR is not set") for node in (paris, rome, oslo)] == [1, 1, 1]


@pytest.mark.slow
def test_a_crashed_worker_comes_back_alone_and_a_failed_site_goes_on_coordinating(nodes: Nodes) -> None:
    paris = nodes.start("paris", conf="is_host=1")
    rome = nodes.start("rome", "--max-restarts=1", conf="is_host=0")
    paris.wait_for_rounds(2, "paris", "rome")
    nodes.crash("rome")
    rome.wait_for("start lone restart 1")
    rome.wait_for_rounds(2, "paris", "rome")
    assert len(paris.pids()) == 1, "the healthy worker was restarted"
    nodes.crash("paris")  # and has no restart left
    paris.wait_for("nothing trains here any more; the coordinator stays")
    rome.wait_for_steps(100)  # alone, half of the swarm moves no anchor
    assert len(rome.pids()) == 2
    nodes.stop_training()
    rome.join()
    assert paris.process.wait(PATIENCE) == 1, "torchrun tells of the failure"


@pytest.mark.slow
def test_a_site_whose_worker_failed_before_round_0_founds_no_swarm_alone(nodes: Nodes) -> None:
    limit = {"COLLAB_JOIN_TIMEOUT": "15s"}
    paris = nodes.start("paris", "--max-restarts=1", conf="is_host=1", COLLAB_SYNC_EVERY="5", **limit)
    rome = nodes.start("rome", "--max-restarts=0", conf="is_host=0", COLLAB_SYNC_EVERY="7", **limit)
    paris.wait_for("site paris does not begin a model alone")
    assert rome.process.wait(PATIENCE) == 1 and "[knob.ranks-differ]" in rome.output
    assert paris.process.wait(PATIENCE) == 1, "nobody comes, which ends it"
    assert "averaged" not in paris.output


@pytest.mark.slow
def test_the_endpoints_node_dies_and_the_other_trains_on(nodes: Nodes) -> None:
    alone = {"COLLAB_FORGET_AFTER": "5s"}  # else half of the swarm, begun again, waits for the other half
    paris = nodes.start("paris", conf="is_host=1", **alone)
    rome = nodes.start("rome", "--max-restarts=1", conf="is_host=0", **alone)
    rome.wait_for_rounds(2, "paris", "rome")
    paris.kill()
    rome.wait_for_steps(100)
    assert len(rome.pids()) == 1
    nodes.crash("rome")
    rome.wait_for("start lone restart 1")
    rome.wait_for_steps(100)
    nodes.stop_training()
    assert "training goes on without it" in rome.join()


@pytest.mark.slow
def test_a_site_needs_only_its_own_store_after_init(nodes: Nodes) -> None:
    hold = nodes.flag("hold")
    nodes.flag("groups")
    paris, rome = nodes.start("paris", conf="is_host=1"), nodes.start("rome", nproc=2, conf="is_host=0")
    paris.wait_for("started pid")
    rome.wait_for(lambda output: output.count("started pid") == 2)
    paris.kill()
    hold.unlink()
    assert rome.join().count("groups are made") == 2


@pytest.mark.slow
def test_the_endpoints_node_is_started_again(nodes: Nodes) -> None:
    paris, rome = nodes.start("paris", conf="is_host=1", **KEY), nodes.start("rome", conf="is_host=0", **KEY)
    rome.wait_for_rounds(2, "paris", "rome")
    paris.kill()
    again = nodes.start("paris", conf="is_host=1", **KEY)
    again.wait_for("is served again, here")
    rome.wait_for_rounds(2, "paris", "rome")
    assert again.starts() == ["rank 0 of 1 start lone restart 0"]
    assert len(rome.pids()) == 1
    nodes.end_together(again, rome)


@pytest.mark.slow
def test_the_endpoints_machine_comes_back_without_its_disk(nodes: Nodes) -> None:
    """It has the candidate again and no record of any swarm: until the other site is heard it trains nothing."""
    disk = nodes.folder / "disk"
    paris = nodes.start("paris", conf="is_host=1", XDG_STATE_HOME=str(disk))
    rome = nodes.start("rome", conf="is_host=0")
    rome.wait_for_rounds(2, "paris", "rome")
    paris.kill()
    shutil.rmtree(disk)
    os.kill(int(rome.pids()[0]), signal.SIGSTOP)  # its agent puts the closed list back
    again = nodes.start("paris", conf="is_host=1", XDG_STATE_HOME=str(disk))
    again.wait_for("does not begin a model alone")
    again.wait_for("round 0: 1 of 2 sites are here")
    assert again.step() == 0
    os.kill(int(rome.pids()[0]), signal.SIGCONT)
    again.wait_for_rounds(2, "paris", "rome")
    assert "moved onto the new anchor" not in again.output and "is taken from paris" not in again.output
    nodes.end_together(again, rome)


@pytest.mark.slow
def test_two_nodes_of_one_site_come_back_together(nodes: Nodes) -> None:
    first = nodes.start("paris", "--max-restarts=1", nnodes="3", conf="is_host=1", **KEY)
    second = nodes.start("paris", "--max-restarts=1", nnodes="3", conf="is_host=0", **KEY)
    rome = nodes.start("rome", nnodes="3", conf="is_host=0", **KEY)
    rome.wait_for_rounds(2, "paris", "rome")
    assert rome.starts() == ["rank 2 of 3 start first-members restart 0"]
    nodes.crash("paris")  # one of its two workers; the other fails with it, as DDP does
    for node in (first, second):
        node.wait_for(r"rank \d of 2 start lone restart 1")
    rome.wait_for_rounds(2, "paris", "rome")
    nodes.stop_together()
    rome.join()
    for node in (first, second):
        assert node.process.wait(PATIENCE) == 0, node.output
    assert first.digest() == second.digest() == rome.digest()


@pytest.mark.slow
def test_a_node_without_the_key_ends_both_with_the_reason(nodes: Nodes) -> None:
    paris, rome = nodes.start("paris", conf="is_host=1", **KEY), nodes.start("rome", conf="is_host=0")
    assert paris.process.wait(PATIENCE) == rome.process.wait(PATIENCE) == 1
    assert "was signed with a token, and this node has none. Give it the COLLAB_TOKEN" in rome.output
    assert "node rome has neither a token nor certificates" in paris.output
    assert not paris.pids() and not rome.pids()


@pytest.mark.slow
def test_frozen_parameters_drawn_at_random_become_those_of_the_first_site(nodes: Nodes) -> None:
    nodes.script, nodes.argument = "values.py", "frozen"
    both = [nodes.start(site, COLLAB_SYNC_EVERY="3") for site in ("paris", "rome")]
    for node in both:
        assert node.join().count("[capture.frozen-differ]") == 1
