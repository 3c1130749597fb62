"""One site that is a world of its own: trains until a file says that it is enough."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from common import batch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

folder = Path(sys.argv[1])
seed = int(sys.argv[2])
dist.init_process_group("collab")
torch.manual_seed(seed)
model = nn.Sequential(nn.Linear(6, 20_000), nn.Tanh(), nn.Linear(20_000, 3))
ddp = DistributedDataParallel(model)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
step = 0
while not (folder / "stop").exists():
    x, y = batch(step, seed)
    optimizer.zero_grad()
    cross_entropy(ddp(x), y).backward()
    optimizer.step()
    step += 1
    time.sleep(0.02)
dist.destroy_process_group()
print(f"ended step {step}", flush=True)
