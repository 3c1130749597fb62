"""What the scripts of this folder share: a model and data small enough for a few seconds, and how a run ends."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
import torch_collab
from torch import nn
from torch.utils.data import TensorDataset
from torch_collab import native

RANK = int(os.environ["RANK"])
STEPS = 12  # of 8 samples each at each of two sites


def model() -> nn.Module:
    """Other numbers at each rank: only a round can make them agree."""
    torch.manual_seed(RANK)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))


def data() -> TensorDataset:
    inputs = torch.randn(2 * 8 * STEPS, 6, generator=torch.Generator().manual_seed(7))
    return TensorDataset(inputs, inputs[:, :3].argmax(1))


def batch(step: int, features: int = 6, seed: int = RANK) -> tuple[torch.Tensor, torch.Tensor]:
    """For scripts with a loop of their own."""
    inputs = torch.randn(8, features, generator=torch.Generator().manual_seed(1000 * step + seed))
    return inputs, inputs[:, :3].argmax(1)


def end(trained: nn.Module) -> None:
    """Ends the world, in which its last round runs, and tells what this rank holds then."""
    steps = torch_collab.status()["steps"]
    dist.destroy_process_group()
    flat = torch.cat([p.detach().float().flatten() for p in trained.parameters()])
    assert bool(torch.isfinite(flat).all())
    print(f"ended after {steps} steps with digest {native.digest(flat)}", flush=True)
