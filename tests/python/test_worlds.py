"""Sites that are worlds of their own (COLLAB_COORDINATOR), and one word under torchrun."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from commands import PATIENCE, Coordinator
from ranks import SCRIPTS, expect_success, run_ranks, run_worlds


@pytest.mark.slow
def test_two_worlds_train_one_model_with_different_data(tmp_path: Path) -> None:
    with Coordinator("--sites", "2") as coordinator:
        sites = {site: [{"COLLAB_SITE_INDEX": str(index)}] * 2 for index, site in enumerate(("paris", "rome"))}
        leaders = run_worlds(tmp_path, coordinator.address, sites)
    for leader in leaders.values():
        assert "was told num_replicas=2 and rank=0" in leader.output, "dealt by hand: left alone, warned of"
    saved = {
        (site, rank): torch.load(tmp_path / site / f"{rank}.pt") for site in ("paris", "rome") for rank in range(2)
    }
    first = saved["paris", 0]
    for who, other in saved.items():
        assert all(torch.equal(a, b) for a, b in zip(first["model"], other["model"], strict=True)), who
    # The same ranks, but other data: the sampler's seed has the site's index added.
    assert saved["paris", 0]["seed"] == 0 and saved["rome", 0]["seed"] == 1
    assert saved["paris", 1]["indices"] != saved["rome", 1]["indices"]
    events = [json.loads(line) for line in (tmp_path / "paris" / "events.jsonl").read_text().splitlines()]
    rounds = [event for event in events if event["event"] == "round"]
    assert rounds and sorted(rounds[0]["members"]) == ["paris", "rome"]


@pytest.mark.slow
def test_ranks_form_a_world_after_one_died_before_it_was_made(tmp_path: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    done = subprocess.run(
        [*torchrun, str(SCRIPTS / "restarted.py"), str(tmp_path)], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0 and done.stdout.count("together 2") == 2, done.stdout + done.stderr


@pytest.mark.slow
def test_a_script_with_one_word_of_collab_runs_under_torchrun(tmp_path: Path) -> None:
    script = SCRIPTS / "one_word.py"
    assert script.read_text().lower().count("collab") == 1
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLLAB_SYNC_EVERY": "3"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("loss") == 2


def test_a_world_of_one_rank_without_ddp_is_warned_while_it_trains() -> None:
    with Coordinator("--sites", "1") as coordinator:
        environment = {"COLLAB_COORDINATOR": coordinator.address}
        (rank,) = expect_success(run_ranks("without_ddp.py", ["a"], environment=environment))
        (alone,) = expect_success(run_ranks("without_ddp.py", ["a"]))
    before, _, after = rank.output.partition("all steps are done")
    assert before.count("[ddp.none-made]") == 1 and "`if world_size > 1:`" in before, rank.output
    assert "[ddp.none-trained]" in after, rank.output
    assert "[ddp.none" not in alone.output, "no other site is there, nor asked for\n" + alone.output
