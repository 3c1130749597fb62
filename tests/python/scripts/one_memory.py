"""A round behind the training, of a model with tied weights: one Parameter in two places, or two in one memory.

What was trained before the round is all that is: the rates are zero until it is merged, however long that takes.
"""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
import torch_collab
from common import RANK, batch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

EVERY = 4  # COLLAB_SYNC_EVERY


class Model(nn.Module):
    def __init__(self, way: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        # Each has more elements than a merge reads, moves and writes at a time.
        self.first, self.one, self.other = nn.Linear(6, 400), nn.Linear(400, 400), nn.Linear(400, 400)
        self.last = nn.Linear(400, 3)
        if way == "parameter":
            self.other.weight = self.one.weight
        else:
            self.other.weight.data = self.one.weight.data

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in (self.first, self.one, self.other):
            x = torch.tanh(layer(x))
        answer: torch.Tensor = self.last(x)
        return answer


out, way = sys.argv[1:]
dist.init_process_group("collab")
ddp = DistributedDataParallel(Model(way))
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.5)
for step in range(EVERY):
    x, y = batch(step, RANK)
    optimizer.zero_grad()
    cross_entropy(ddp(x), y).backward()
    optimizer.step()
torch.save(ddp.module.state_dict(), f"{out}/{way}-before{RANK}.pt")
optimizer.param_groups[0]["lr"] = 0.0
while torch_collab.status()["round"] == 0:
    optimizer.zero_grad()
    cross_entropy(ddp(x), y).backward()
    optimizer.step()
assert ddp.module.one.weight.data_ptr() == ddp.module.other.weight.data_ptr()
torch.save(ddp.module.state_dict(), f"{out}/{way}-merged{RANK}.pt")
dist.destroy_process_group()
