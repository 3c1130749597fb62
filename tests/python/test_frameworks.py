"""The recipes of docs/guides/frameworks.md: each trains a tiny model at two sites with the backend's word changed.

The frameworks are those of ci/requirements-frameworks.txt, which ci/setup.sh puts into a folder of their own.
"""

from __future__ import annotations

import json
import os
import re
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import Coordinator
from ranks import Finished, Ranks, expect_success, start_site
from torch_collab.capture import rounds
from torch_collab.model import optimizer_copy

ROOT = Path(__file__).parents[2]
FRAMEWORKS = Path(sys.prefix) / "frameworks"
PINNED = re.findall(r"(?m)^([\w-]+)==", (ROOT / "ci" / "requirements-frameworks.txt").read_text())
SITES = ("paris", "tokyo")


def path_with(*names: str) -> str:
    """The PYTHONPATH under which all of these can be imported; else the test ends here."""
    given = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    # torchvision from PyPI fails on import beside a torch without CUDA, so it is not on everyone's path.
    folders = [*given, str(FRAMEWORKS)] + [str(FRAMEWORKS / "apart")] * ("torchvision" in names)
    for name in names:
        if PathFinder.find_spec(name, [*folders, *sys.path]) is None:
            why = f"{name} is not installed; ci/setup.sh does that"
            if os.environ.get("CI") == "true" and name in PINNED:
                pytest.fail(why)
            pytest.skip(why)
    return os.pathsep.join(folders)


def train(folder: Path, path: str, *command: str) -> list[Finished]:
    """A script of scripts/frameworks in one world of two sites: rounds are of both, and both end alike."""
    told = folder / "events.jsonl"
    environments = [
        {
            # As torchrun sets them on two machines.
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "GROUP_RANK": str(rank),
            "TORCHELASTIC_RUN_ID": "frameworks",
            "COLLAB_SITE": site,
            "COLLAB_SYNC_EVERY": "5",
            "COLLAB_EVENTS_FILE": str(told),
            "PYTHONPATH": path,
        }
        for rank, site in enumerate(SITES)
    ]
    with Ranks(f"frameworks/{command[0]}.py", command[1:], environments) as ranks:
        finished = expect_success(ranks.join(200))
    ends = {re.findall(r"ended after 12 steps with digest (\w+)", rank.output)[0] for rank in finished}
    assert len(ends) == 1, "the sites ended with different parameters"
    rounds: dict[str, dict[int, str]] = {site: {} for site in SITES}
    for event in map(json.loads, told.read_text().splitlines()):
        if event["event"] == "round" and event["site"] in SITES:
            assert sorted(event["members"]) == list(SITES)
            assert sorted(event["contributors"]) == list(SITES) or event["round"] > 2
            rounds[event["site"]][event["round"]] = event["digest"]
    assert rounds["paris"] == rounds["tokyo"] and len(rounds["paris"]) >= 3
    return finished


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "names"),
    [
        ("with_trainer", ["transformers", "accelerate", "psutil"]),
        ("with_accelerate", ["accelerate", "psutil"]),
        ("with_lightning", ["lightning", "lightning_utilities", "torchmetrics"]),
        ("with_fabric", ["lightning", "lightning_utilities", "torchmetrics"]),
        ("with_timm", ["timm", "torchvision"]),
        ("eight_bit torchao", ["torchao"]),
        ("eight_bit bitsandbytes", ["bitsandbytes"]),
        ("with_muon", []),
    ],
)
def test_two_sites_train(tmp_path: Path, script: str, names: list[str]) -> None:
    train(tmp_path, path_with(*names), *script.split())


@pytest.mark.slow
def test_a_loader_that_reads_for_all_sites_is_warned_of(tmp_path: Path) -> None:
    paris, tokyo = train(tmp_path, path_with("accelerate", "psutil"), "with_dispatch")
    for rank in (paris, tokyo):
        assert rank.output.count("[capture.dispatch-batches]") == 1, rank.output


@pytest.mark.slow
def test_a_state_of_8_bits_is_not_served_and_the_late_site_starts_cold(tmp_path: Path) -> None:
    path, told = path_with("torchao"), tmp_path / "events.jsonl"
    with Coordinator("--sites", "1") as coordinator:

        def start(site: str, index: int) -> Ranks:
            script, arguments = "frameworks/eight_bit.py", ["torchao", str(tmp_path)]
            return start_site(script, arguments, site, index, coordinator.address, told, PYTHONPATH=path)

        with start("paris", 0) as paris:
            paris.wait_for_line(0, "round 1:")
            with start("late", 1) as late:
                ends = expect_success(late.join())  # paris trains until it has
                expect_success(paris.join())
    events = [json.loads(line) for line in told.read_text().splitlines()]
    reasons = [event["reason"] for event in events if event["event"] == "join-optimizer"]
    assert len(reasons) == 1 and "starts cold" in reasons[0] and reasons[0] in ends[0].output
    assert "AdamW8bit keeps exp_avg as OptimState8bit, which collab does not serve to other sites" in reasons[0]


class Strange(torch.Tensor):
    """As torchao's state: it looks like float32, and knows next to nothing."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.isfinite, torch.Tensor.dequantize):
            raise NotImplementedError(func)
        return super().__torch_function__(func, types, args, kwargs or {})


def with_state(**held: Any) -> torch.optim.Optimizer:
    parameter = torch.nn.Parameter(torch.zeros(4))
    optimizer = torch.optim.AdamW([parameter])
    optimizer.state[parameter] = held
    return optimizer


def test_state_that_is_no_plain_tensor_is_neither_served_nor_trusted() -> None:
    for moment, named in (
        (torch.zeros(4).as_subclass(Strange), "Strange"),
        (torch.zeros(4, dtype=torch.uint8), "uint8"),
    ):
        optimizer = with_state(exp_avg=moment)
        trained = ((id(optimizer.param_groups[0]["params"][0]), 4),)
        why = rf"keeps exp_avg as .*{named}.*, which collab does not serve to other sites"
        with pytest.raises(optimizer_copy.Unsuitable, match=why):
            optimizer_copy.make([optimizer], trained)
    assert rounds._unfit({"exp_avg": torch.zeros(4).as_subclass(Strange)}), "what cannot be looked at starts anew"
    assert not rounds._unfit({"exp_avg": torch.zeros(4), "step": 3})
    assert rounds._unfit({"exp_avg": torch.tensor([float("nan")])})
