"""A site that comes while others train."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ranks import Ranks, expect_success
from test_cli import Coordinator


@pytest.mark.slow
def test_a_joiner_of_25_million_parameters_trains_soon(tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    with Coordinator("--sites", "2") as coordinator:

        def start(site: str, index: int) -> Ranks:
            environment = {
                "COLLAB_SITE": site,
                "COLLAB_SITE_INDEX": str(index),
                "COLLAB_COORDINATOR": coordinator.address,
                "COLLAB_SYNC_EVERY": "20",
                "COLLAB_EVENTS": str(events),
            }
            return Ranks("late.py", [str(tmp_path), site], [environment])

        worlds = [start("paris", 0), start("oslo", 1)]
        try:
            for world in worlds:
                world.wait_for_line(0, "round 2:", 120)
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
