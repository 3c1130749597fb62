"""Ranks that multiprocessing forks, or spawns, as two sites; their function returns, and nothing else ends the run."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def work(rank: int, fails: bool) -> None:
    os.environ.update(COLLAB_SITE="ab"[rank], RANK=str(rank), WORLD_SIZE="2")
    torch.set_num_threads(1)
    dist.init_process_group("collab")
    torch.manual_seed(0)
    ddp = DistributedDataParallel(nn.Linear(6, 3))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        (ddp(torch.randn(4, 6)) + rank).pow(2).mean().backward()
        optimizer.step()
    dist.barrier(group=dist.new_group([0, 1]))  # neither fails before the other has trained
    if fails:
        raise ValueError("as it happens")


if __name__ == "__main__":
    mp.start_processes(work, (sys.argv[2:] == ["fails"],), nprocs=2, start_method=sys.argv[1])
    print("all ranks have ended", flush=True)
