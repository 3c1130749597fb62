"""What the scripts share: a world, a small model and data that depend only on seeds."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch_collab import log

RANK = int(os.environ["RANK"])
WORLD = int(os.environ["WORLD_SIZE"])
# TEST_DEVICE=cuda: the same scripts on a GPU, which their ranks share.
if device := os.environ.get("TEST_DEVICE"):
    torch.set_default_device(device)


def drawn(tensor: torch.Tensor) -> torch.Tensor:
    """Random numbers are drawn on the host, that they are the same everywhere."""
    return tensor.to(torch.get_default_device())


def say(what: str) -> None:
    """In one write: torchrun has Python write unbuffered, and what others say would fall between a line and its end."""
    print(f"[{os.environ['COLLAB_SITE']}] {what}\n", end="", flush=True)


def mark(where: str) -> None:
    """A line of its own, after all that collab's log has said so far: the log has a queue, and would come later."""
    log.flush()
    print(f"{where}\n", end="", flush=True)


def small_model(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    with torch.device("cpu"):
        model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3))
    return model.to(torch.get_default_device())


def batch(step: int, rank: int, size: int = 5, features: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator("cpu").manual_seed(1000 * step + rank)
    host: Any = {"generator": generator, "device": "cpu"}
    return drawn(torch.randn(size, features, **host)), drawn(torch.randint(0, 3, (size,), **host))


def parameters_of(module: nn.Module) -> list[torch.Tensor]:
    return [p.detach().clone() for p in module.parameters()]


def spread_over_world(module: nn.Module, group: object = None) -> float:
    """The largest difference of any parameter between ranks of the group."""
    worst = 0.0
    for p in module.parameters():
        low, high = p.detach().clone(), p.detach().clone()
        dist.all_reduce(low, dist.ReduceOp.MIN, group=group)
        dist.all_reduce(high, dist.ReduceOp.MAX, group=group)
        worst = max(worst, float((high - low).abs().max()))
    return worst
