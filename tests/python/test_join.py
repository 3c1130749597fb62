"""A site that comes while others train, and one that comes back on the same machine."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from commands import Coordinator
from ranks import Ranks, expect_success, start_site
from torchruns import Nodes


@pytest.mark.slow
def test_a_joiner_of_25_million_parameters_trains_soon(tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    with Coordinator("--sites", "2") as coordinator:

        def start(site: str, index: int) -> Ranks:
            return start_site("late.py", [str(tmp_path), site], site, index, coordinator.address, events)

        worlds = [start("paris", 0), start("oslo", 1)]
        try:
            for world in worlds:
                world.wait_for_line(0, "round 2:")
            worlds.append(start("late", 2))
            for world in worlds:
                expect_success(world.join())
        finally:
            for world in worlds:
                world.kill()
    seconds = float((tmp_path / "started-late").read_text())
    told = [json.loads(line) for line in events.read_text().splitlines()]
    fetched = [event for event in told if event["event"] == "fetch" and event["site"] == "late"][-1]
    print(f"a joiner of 25 M float32 was training after {seconds:.2f} s; the anchor took {fetched['seconds']:.2f} s")
    assert fetched["percent"] == 100 and fetched["bytes"] == 100_000_000
    assert set(fetched["sources"]) <= {"paris", "oslo"} and sum(fetched["sources"].values()) == 100_000_000
    assert seconds < 60


@pytest.mark.slow
def test_a_site_restarted_on_its_machine_has_the_anchor_from_shared_memory(nodes: Nodes) -> None:
    paris = nodes.start("paris", conf="is_host=1")
    rome = nodes.start("rome", "--max-restarts=1", nproc=2, conf="is_host=0")
    rome.wait_for_rounds(2, "paris", "rome")
    for pid in rome.pids():
        os.kill(int(pid), signal.SIGKILL)
    rome.wait_for("start lone restart 1")
    rome.wait_for_rounds(2, "paris", "rome")
    nodes.stop_training()
    for node in (paris, rome):
        node.join()
    assert "is complete; this site goes on from it" in rome.output
    told = [json.loads(line) for line in (nodes.folder / "rome.jsonl").read_text().splitlines()]
    fetched = [event["round"] for event in told if event["event"] == "fetch" and event["site"] == "rome"]
    assert fetched == [0], "half of the swarm moved no anchor, so there was none to fetch"
