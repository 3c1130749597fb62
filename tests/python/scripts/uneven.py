"""Sites that take unlike numbers of steps before each barrier of the world: TEST_STEPS of them, `barriers` times.

uneven.py BARRIERS      how many
"""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist
from common import RANK, WORLD, batch, small_model
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch_collab import native

dist.init_process_group("collab")
ddp = DistributedDataParallel(small_model(RANK))
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
step = 0
for number in range(int(sys.argv[1])):
    begun = time.monotonic()
    for _ in range(int(os.environ["TEST_STEPS"])):
        x, y = batch(step, RANK)
        optimizer.zero_grad()
        cross_entropy(ddp(x), y).backward()
        optimizer.step()
        step += 1
    dist.barrier()
    print(f"barrier {number} after {time.monotonic() - begun:.3f} s", flush=True)
    flat = torch.cat([p.detach().flatten() for p in ddp.parameters()])
    digests: list[object] = [None] * WORLD
    dist.all_gather_object(digests, native.digest(flat))
    assert len(set(digests)) == 1, digests
dist.destroy_process_group()
