"""`torch_collab.log_metrics`: what a site logged last is in its events, once after each round."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import expect_success, run_ranks
from torch_collab.world import metrics


def test_logged_values_follow_each_round(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    environment = {"COLLAB_EVENTS_FILE": str(file), "COLLAB_SYNC_EVERY": "2"}
    expect_success(run_ranks("metrics.py", ["a", "b", "b"], environment=environment))
    told: dict[str, list[dict[str, Any]]] = {"a": [], "b": []}
    rounds: dict[str, list[int]] = {"a": [], "b": []}
    for line in file.read_text().splitlines():
        event = json.loads(line)
        if event["event"] == "metrics":
            assert rounds[event["site"]][-1] == event["round"], "it follows its round"
            told[event["site"]].append(event)
        elif event["event"] == "round" and "bytes_sent" in event:
            rounds[event["site"]].append(event["round"])
    for site, rank in (("a", 0), ("b", 1)):
        assert [event["round"] for event in told[site]] == [n for n in rounds[site] if n > 0], told
        assert [event["step"] for event in told[site]] == [2, 4, 5]
        assert [event["metrics"]["step"] for event in told[site]] == [2, 4, 5]
        assert {event["metrics"]["of"] for event in told[site]} == {rank}, "the lowest rank's"
        assert all(event["metrics"]["loss"] > 0 for event in told[site])
        assert "rate" not in told[site][0]["metrics"] and told[site][1]["metrics"]["rate"] is None
        assert told[site][0]["t"] == pytest.approx(told["a"][0]["t"], abs=60)


def test_a_loss_with_gradients_is_no_reason_for_torch_to_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert metrics._number("loss", torch.ones(1, requires_grad=True).sum()) == 1.0


def test_metrics_go_into_a_plain_file_of_ours_alone(tmp_path: Path) -> None:
    file = tmp_path / "events"
    metrics._append(str(file), "a\n")
    metrics._append(str(file), "b\n")
    assert file.read_text() == "a\nb\n" and file.stat().st_mode & 0o777 == 0o600
    link = tmp_path / "link"
    link.symlink_to(file)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        for other in (link, pipe):
            with pytest.raises(OSError):
                metrics._append(str(other), "c\n")
    finally:
        os.close(reader)
    assert file.read_text() == "a\nb\n"
