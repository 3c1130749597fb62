"""Two optimizers of one model, of which the second steps every TEST_RATE-th time."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from common import RANK, batch, small_model
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("collab")
ddp = DistributedDataParallel(small_model())
parameters = list(ddp.parameters())
every = torch.optim.AdamW(parameters[:2], lr=0.01)
rare = torch.optim.SGD(parameters[2:], lr=0.1)
rate = int(os.environ["TEST_RATE"])
for step in range(1, 4 * rate + 1):
    x, y = batch(step, RANK)
    ddp.zero_grad()
    cross_entropy(ddp(x), y).backward()
    every.step()
    if step % rate == 0:
        rare.step()
dist.destroy_process_group()
print("went through", flush=True)
