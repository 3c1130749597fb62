"""One site that is a world of its own: trains, then writes the model and what its sampler dealt."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from common import RANK, batch, parameters_of, small_model
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("collab")
sampler = DistributedSampler(TensorDataset(torch.arange(100)))
explicit = DistributedSampler(TensorDataset(torch.arange(100)), num_replicas=2, rank=RANK)
assert explicit.seed == 0, "ranks that are given are left alone"
ddp = DistributedDataParallel(small_model(RANK))
optimizer = torch.optim.AdamW(ddp.parameters(), lr=0.01)
for step in range(10):
    x, y = batch(step, 10 * sampler.seed + RANK)
    optimizer.zero_grad()
    cross_entropy(ddp(x), y).backward()
    optimizer.step()
dist.destroy_process_group()
torch.save({"model": parameters_of(ddp), "seed": sampler.seed, "indices": list(sampler)}, f"{sys.argv[1]}/{RANK}.pt")
