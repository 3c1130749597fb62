"""A barrier of the world makes one model of sites whose rounds average a part of it. Two sites of two ranks."""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch_collab
from common import RANK, batch, small_model, spread_over_world
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

EVERY = 4  # steps from round to round

dist.init_process_group("collab")
ddp = DistributedDataParallel(nn.Sequential(nn.Linear(6, 64), nn.Linear(64, 64), nn.Linear(64, 6), small_model()))
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
for barrier in range(2):
    for step in range(EVERY):
        x, y = batch(barrier * EVERY + step, RANK)
        optimizer.zero_grad()
        cross_entropy(ddp(x), y).backward()
        optimizer.step()
    # The round that was due at this very step averaged one part.
    assert spread_over_world(ddp) > 0.0
    dist.barrier()
    assert spread_over_world(ddp) == 0.0
    assert torch_collab.status()["steps_since_round"] == 0
    rounds = torch_collab.status()["round"]
    dist.barrier()
    assert torch_collab.status()["round"] == rounds, "nothing was left to average"
dist.destroy_process_group()
print("done", flush=True)
