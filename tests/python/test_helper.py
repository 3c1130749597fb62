"""`collab helper`: two sites that nobody can dial train one model through it."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
import torch
from commands import PATIENCE, Coordinator, Running, collab
from ranks import run_worlds


class Helper(Running):
    def __init__(self, coordinator: str, **environment: str) -> None:
        super().__init__(
            "helper", "--coordinator", coordinator, "--site", "helper", "--listen", "127.0.0.1:0", **environment
        )

    def end(self) -> str:
        self.process.send_signal(signal.SIGTERM)
        out, _ = self.process.communicate(timeout=PATIENCE)
        assert self.process.returncode == 0, out
        return out


@pytest.mark.slow
def test_two_sites_behind_nat_train_through_a_helper(tmp_path: Path) -> None:
    events = tmp_path / "helper.jsonl"
    with (
        Coordinator("--sites", "2", COLLAB_TRANSPORT="tcp") as coordinator,
        Helper(coordinator.address, COLLAB_TRANSPORT="tcp", COLLAB_EVENTS_FILE=str(events)) as helper,
    ):
        # The second can take the anchor from the helper alone, so it is there before the first round.
        behind_nat = {"COLLAB_ADVERTISE": "none", "COLLAB_TRANSPORT": "tcp"}
        run_worlds(tmp_path, coordinator.address, {site: [behind_nat] for site in ("paris", "rome")})
        assert "helper ends" in helper.end()
    saved = [torch.load(tmp_path / site / "0.pt") for site in ("paris", "rome")]
    assert all(torch.equal(a, b) for a, b in zip(saved[0]["model"], saved[1]["model"], strict=True))
    told = [json.loads(line) for line in events.read_text().splitlines()]
    rounds = [event for event in told if event["event"] == "round"]
    assert rounds and all(sorted(event["members"]) == ["helper", "paris", "rome"] for event in rounds)
    assert all(sorted(event["contributors"]) == ["paris", "rome"] for event in rounds[:-1])


@pytest.mark.slow
def test_a_helper_without_a_coordinator_is_told_the_option() -> None:
    done = collab("helper")
    assert done.returncode == 1
    assert "--coordinator HOST:PORT" in done.stderr
