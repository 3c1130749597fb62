"""Local SGD over the backend: every rank writes its parameters after each round and at the end."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from common import RANK, batch, parameters_of, small_model
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel


def main(out: str, steps: int, every: int) -> None:
    dist.init_process_group("collab")
    size = int(os.environ["BATCH"])
    # Every rank starts from other weights: round 0 must give all of them the first site's.
    ddp = DistributedDataParallel(small_model(RANK))
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=0.01)
    seen = []
    for step in range(steps):
        x, y = batch(step, RANK, size)
        cross_entropy(ddp(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
        if (step + 1) % every == 0:
            seen.append(parameters_of(ddp))
    dist.destroy_process_group()
    seen.append(parameters_of(ddp))
    torch.save(seen, f"{out}/{RANK}.pt")


main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
